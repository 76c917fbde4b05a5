"""The table of images: what is written and read back, what a broken file says, and which images are held out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.cameras import Camera
from datasets.classes import ClassSet
from datasets.table import INFO_FILE, LEFT_OUT_FILE, TABLE_FILE, DatasetInfo, Listing, read_table, write_table
from datasets.tasks import CLASS, MASK, TASKS, Scale, get_task
from tests.datasets.tables import rows_with
from utils.errors import UserError
from utils.files import write_atomically

AGAIN = r"run extract_datapoints_for_experiments\.py again"
ABOUT = DatasetInfo(
    "csv",
    ("rgb", MASK),
    ("user", "place"),
    {CLASS: ClassSet(("cat", "dog")), MASK: ClassSet(("sky",), (4,), (255,))},
    "place",
    "pad",
    {MASK: 200.0},
    "python stage.py --colour red",
)
ROWS = pd.DataFrame(
    {
        "rgb": ["a b.png", "x.npz#images/3", 'é,"☃".jpg', "c.png"], MASK: ["m/1.png", "m/2.png", "m/3.png", "m/4.png"],
        CLASS: [1, -1, 0, 1], "user": ["zoë", "", 'he said "no", and left', "7"], "place": ["1", "2", "1", "10"],
        "part": ["train", "test", "val", "train"],
    }
)  # fmt: skip


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A data folder with the table of `ROWS`."""
    write_table(tmp_path, Listing(ROWS, ABOUT))
    return tmp_path


# Written and read back


def test_table_reads_as_it_was_written(written: Path) -> None:
    table = read_table(written)
    assert len(table) == 4 and table.info == ABOUT and table.data_path == written
    assert table.image_ids == table.cells("rgb") == tuple(ROWS["rgb"])
    assert table.cells(MASK) == tuple(ROWS[MASK])
    assert table.labels.tolist() == [1, -1, 0, 1] and table.labels.dtype == np.int64
    assert {name: values.tolist() for name, values in table.groups.items()} == ROWS[["user", "place"]].to_dict("list")
    assert (table.train.tolist(), table.val.tolist(), table.test.tolist()) == ([0, 3], [2], [1])
    assert table.units[0] == table.units[2] and len(set(table.units)) == 3  # of one place
    assert table.class_names == ("cat", "dog")


def test_classes_are_those_of_the_column_that_labels_a_task(written: Path) -> None:
    table = read_table(written)
    assert table.class_set(get_task("classification")).names == ("cat", "dog")
    assert table.bind(get_task("segmentation")).classes == ClassSet(("sky",), (4,), (255,))
    assert table.bind(get_task("normal")) == get_task("normal")
    with pytest.raises(UserError, match=f"segment_semantic: .*{TABLE_FILE} has no classes of its segment_semantic col"):
        table.class_set(get_task("segment_semantic"))
    with pytest.raises(UserError, match=f"{TABLE_FILE} has no files of normal, only of rgb, mask; {AGAIN}"):
        table.cells("normal")


def test_a_table_serves_the_tasks_whose_files_and_classes_it_has(written: Path) -> None:
    table = read_table(written)  # with masks, classes, and neither depth nor boxes
    assert [name for name, task in TASKS.items() if table.serves(task)] == [
        "segmentation",
        "class_scene",
        "classification",
    ]


def test_without_groups_and_classes_each_image_is_a_unit(tmp_path: Path) -> None:
    write_table(tmp_path, Listing(rows_with(part=["train", "test"]), DatasetInfo("folder", ("rgb",))))
    table = read_table(tmp_path)
    assert table.units.tolist() == [0, 1] and table.class_names == () and not table.groups


def test_list_of_what_was_left_out_goes_with_the_last_of_it(tmp_path: Path) -> None:
    write_table(tmp_path, Listing(ROWS, ABOUT, ["b.png: not a readable image", "d.png"]))
    assert (tmp_path / LEFT_OUT_FILE).read_text() == "b.png: not a readable image\nd.png\n"
    write_table(tmp_path, Listing(ROWS, ABOUT))
    assert not (tmp_path / LEFT_OUT_FILE).exists()


def test_the_same_table_written_again_can_be_read_meanwhile_and_another_is_never_misdescribed(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep's jobs read the table while another sweep selects the same images."""
    seen: set[int | None] = set()

    def look() -> None:
        try:
            seen.add(len(read_table(written)))
        except UserError:
            seen.add(None)

    @contextmanager
    def watched(path: Path) -> Iterator[Path]:
        with write_atomically(path) as temporary:
            yield temporary
            look()
        look()

    monkeypatch.setattr("datasets.table.write_atomically", watched)
    write_table(written, Listing(ROWS, ABOUT))
    assert seen == {4}
    seen.clear()
    write_table(written, Listing(ROWS[:3], ABOUT))
    assert seen == {None} and len(read_table(written)) == 3


@pytest.mark.parametrize(
    "about",
    [
        replace(ABOUT, fit="crop"), replace(ABOUT, limits={}), replace(ABOUT, together=None),
        replace(ABOUT, resize="nearest"),
        replace(ABOUT, classes={**ABOUT.classes, CLASS: ClassSet(("dog", "cat"))}), replace(ABOUT, source="folder"),
        replace(ABOUT, scales={MASK: Scale(0.5)}),
        replace(ABOUT, levels=(0.0, 4095.0)),
    ],
    ids=["fit", "limits", "together", "resize", "classes", "source", "scales", "levels"],
)  # fmt: skip
def test_fingerprint_is_of_all_that_bears_on_the_images(written: Path, about: DatasetInfo) -> None:
    before = read_table(written).fingerprint
    write_table(written, Listing(ROWS, replace(ABOUT, made_by="another command")))
    assert read_table(written).fingerprint == before
    write_table(written, Listing(ROWS, about))
    assert read_table(written).fingerprint != before
    write_table(written, Listing(ROWS.iloc[[1, 0, 2, 3]], ABOUT))
    assert read_table(written).fingerprint != before


def test_what_maps_mean_is_read_as_it_was_written_and_older_tables_say_nothing_of_it(written: Path) -> None:
    before, file = read_table(written), written / INFO_FILE
    said = json.loads(file.read_text())
    del said["scales"]
    file.write_text(json.dumps(said))
    older = read_table(written)
    assert (older.info, older.fingerprint) == (before.info, before.fingerprint)
    assert {"levels"} <= said.keys()
    del said["levels"]
    file.write_text(json.dumps(said))
    assert read_table(written).fingerprint == before.fingerprint
    scales = {MASK: Scale(0.001, (0.0, 65535.0), rotated=True, world=True)}
    write_table(written, Listing(ROWS, replace(ABOUT, scales=scales)))
    assert read_table(written).info.scales == scales
    first = read_table(written).fingerprint
    write_table(written, Listing(ROWS, replace(ABOUT, scales={MASK: Scale(0.001, (0.0, 65535.0))})))
    plain = read_table(written).fingerprint
    assert plain != first
    file.write_text(json.dumps(said | {"scales": {MASK: {"unit": 0.001, "invalid": [0, 65535]}}}))
    assert read_table(written).fingerprint == plain  # of a table that says nothing of bits, axes and cameras
    scales = {MASK: Scale(0.5, offset=-1.0, camera=Camera("disparity", (1.0, 2.0, 3.0, 4.0), 0.2), valid_from=2.0)}
    write_table(written, Listing(ROWS, replace(ABOUT, scales=scales)))
    assert read_table(written).info.scales == scales and read_table(written).fingerprint not in (first, plain)
    for broken in (
        {MASK: {"unit": 0, "invalid": []}},
        {MASK: {"unit": 1}},
        {MASK: 1},
        [1],
        {MASK: {"unit": 1, "invalid": [], "world": "yes"}},
        {MASK: {"unit": 1, "invalid": [], "camera": {"distance": "far"}}},
    ):
        file.write_text(json.dumps(said | {"scales": broken}))
        with pytest.raises(UserError, match=f"not a table's description .*{AGAIN}"):
            read_table(written)


# Broken files


def test_missing_table_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is missing; run extract_datapoints_for_experiments\.py first"):
        read_table(tmp_path)


def test_selection_of_an_earlier_version_names_the_command(tmp_path: Path) -> None:
    (tmp_path / TABLE_FILE).write_text("filepath,building,class_idx,label,split\n")
    with pytest.raises(UserError, match=f"{INFO_FILE} is missing: the selection is of an earlier version; {AGAIN}"):
        read_table(tmp_path)


def test_another_version_names_the_command_that_made_it(written: Path) -> None:
    change(written / INFO_FILE, version=99)
    with pytest.raises(UserError, match=r"is of version 99, and this is 1; run again: python stage\.py --colour red$"):
        read_table(written)


def change(path: Path, **entries: object) -> None:
    """Other entries in a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize(
    "entries",
    [
        {"fit": "fill"},
        {"fit": 3},
        {"domains": []},
        {"domains": ["mask"]},
        {"domains": ["rgb", "rgb"]},
        {"domains": 3},
        {"groups": ["rgb"]},
        {"groups": ["part"]},
        {"groups": None},
        {"together": "building"},
        {"together": 3},
        {"classes": []},
        {"classes": {"class": []}},
        {"classes": {"class": {"names": []}}},
        {"classes": {"class": {"names": ["a"], "ids": [1, 2]}}},
        {"classes": {"class": {"names": ["a"], "ids": ["x"]}}},
        {"classes": {"class": {"names": ["a"], "ids": [float("inf")]}}},
        {"classes": {"class": {"names": 3}}},
        {"classes": {"class": {"names": ["a", "b"], "ids": [1, 1]}}},
        {"limits": {"mask": "x"}},
        {"limits": [1]},
        {"classes": {"class": {"names": ["a"], "colours": ["chartreuse-ish"]}}},
        {"classes": {"mask": {"names": ["a"], "ids": [-1]}}},
        {"classes": {"mask": {"names": ["a"], "ids": [10**12]}}},
        {"classes": {"mask": {"names": [str(i) for i in range(256)]}}},
        {"classes": {"mask": {"names": ["a"], "void": [10**12]}}},
        {"colour": "red"},
    ],
    ids=str,
)
def test_description_that_is_none_names_the_stage(written: Path, entries: dict[str, object]) -> None:
    change(written / INFO_FILE, **entries)
    with pytest.raises(UserError, match=f"{INFO_FILE}: not a table's description .*; {AGAIN}"):
        read_table(written)


@pytest.mark.parametrize("missing", ["version", "source", "domains", "groups", "classes", "made_by"])
def test_description_that_lacks_an_entry_names_the_stage(written: Path, missing: str) -> None:
    path = written / INFO_FILE
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != missing}))
    with pytest.raises(UserError, match=f"not a table's description .*; {AGAIN}"):
        read_table(written)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"null", b"\xff\xfe", b'{"version": 1'])
def test_broken_description_names_the_stage(written: Path, content: bytes) -> None:
    (written / INFO_FILE).write_bytes(content)
    with pytest.raises(UserError, match=f"{INFO_FILE}: not a table's description .*; {AGAIN}"):
        read_table(written)


@pytest.mark.parametrize(
    "column, value, text",
    [
        ("rgb", "/etc/passwd", "'/etc/passwd' is not a path within"), ("rgb", "a/../../b.png", "is not a path within"),
        ("rgb", "", "'' is not a path"), ("rgb", "a\\b.png", "is not a path within"), (MASK, "../m.png", "not a path"),
        (MASK, "", "is not a path within"), ("rgb", "c.png", "c.png stands there twice"),
        (CLASS, "x", "class 'x' is not one of -1..1"), (CLASS, "2", "class '2' is not"), (CLASS, "-2", "class '-2'"),
        (CLASS, "0.5", "class '0.5' is not"), (CLASS, "1.0", "class '1.0' is not"), (CLASS, "", "class '' is not"),
        (CLASS, "nan", "class 'nan'"), (CLASS, str(10**30), "class '10000000000"), (CLASS, "9" * 500, "class '999"),
        (CLASS, "True", "class 'True'"), ("part", "validation", "part 'validation' is not one of train, val, test"),
        ("part", "", "part '' is not one"), ("rgb", "../" + "a" * 5000, "is not a path within"),
    ],
)  # fmt: skip
def test_broken_row_is_named(written: Path, column: str, value: str, text: str) -> None:
    rows = pd.read_csv(written / TABLE_FILE, dtype=str, keep_default_na=False)
    rows.loc[0, column] = value
    rows.to_csv(written / TABLE_FILE, index=False)
    with pytest.raises(UserError, match=f"{TABLE_FILE}: .*{text}.*; {AGAIN}") as caught:
        read_table(written)
    assert len(str(caught.value).replace(str(written), "")) < 250


HEADER = "rgb,mask,class,user,place,part\n"


@pytest.mark.parametrize(
    "content, text",
    [
        ("", "its columns are not rgb, mask, class, user, place, part"), ("\0\1", "its columns are not"),
        ("rgb,mask,class,user,part\na,b,0,u,train\n", "its columns are not"), ("rgb\n", "its columns are not"),
        ("mask,rgb,class,user,place,part\n", "its columns are not"), ('rgb,mask,class,user,place,"part\n', "end of"),
        (b"\xff\xfe\x00", "decode"), (HEADER, "it names no image"), (HEADER.strip(), "it names no image"),
        (HEADER + "a,b,0\n", "part '' is not one"), (HEADER + "a,b,0,u,p,train,x\n", "more fields than columns"),
        (HEADER + "a,b,0,u,p,train\na2,b,0,u,p,train,x\n", "Expected 6 fields"),
        (HEADER + "a,b,0,u,p,train\n\nc,b,0,u,p,test\n", "3 lines make 2 rows"),
        (HEADER + "a,b,0,u,p,train\n\n", "2 lines make 1 rows"),
        (HEADER + 'a,b,0,u,"p,train\nc,b,0,u,p,test\n', "EOF inside string"),
        (HEADER + 'a,b,0,u,"p,train\nc,b,0,u,p",test\nd,b,0,u,p,train\n', "3 lines make 2 rows: a blank line, or"),
        (HEADER + "a,b,0,u,p\r2,train\n", "lines make"), (HEADER.encode() + b"a,b,0,\xff,p,train\n", "decode"),
    ],
)  # fmt: skip
def test_broken_file_names_the_stage(written: Path, content: str | bytes, text: str) -> None:
    (written / TABLE_FILE).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=f"{TABLE_FILE}: .*{text}.*; {AGAIN}"):
        read_table(written)


def test_lines_may_end_in_any_way_and_the_last_in_none(written: Path) -> None:
    path = written / TABLE_FILE
    expected = read_table(written)
    content = path.read_bytes()
    for other in (content.replace(b"\n", b"\r\n"), content.rstrip(b"\n")):
        path.write_bytes(other)
        table = read_table(written)
        assert (table.files, table.info) == (expected.files, expected.info)


@pytest.mark.parametrize("make", [lambda n: ",".join(f"c{i}" for i in range(n)), lambda n: '"' * n, lambda n: "a" * n])
def test_a_million_columns_are_refused_by_their_header_alone(
    written: Path, make: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = make(1_000_000)
    (written / TABLE_FILE).write_text(f"{line}\n{line}\n")
    monkeypatch.delattr(pd, "read_csv")  # which takes minutes for so many
    with pytest.raises(UserError, match=r"its columns are not|field larger than"):
        read_table(written)


@settings(deadline=None, max_examples=150)
@given(
    at=st.integers(0, 10**4),
    byte=st.sampled_from([0, 9, 10, 13, 34, 44, 47, 92, 255, 48]),
    cut=st.integers(0, 2),
    name=st.sampled_from([TABLE_FILE, INFO_FILE]),
)
def test_a_changed_byte_ends_in_a_table_or_a_line(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, cut: int, name: str
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    write_table(folder, Listing(ROWS, ABOUT))
    content = bytearray((folder / name).read_bytes())
    content[at % len(content)] = byte
    (folder / name).write_bytes(content[: len(content) // (cut or 1)])
    try:
        table = read_table(folder)
    except UserError as error:
        assert AGAIN.replace("\\", "") in str(error) or "run again" in str(error)
        return
    assert len(table) <= 4 and all(cell and not cell.startswith("/") for cell in table.image_ids)


# Text


@settings(deadline=None, max_examples=100)
@given(
    users=st.lists(
        st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]), max_size=8),
        min_size=4,
        max_size=12,
    ),
    column=st.text(
        st.characters(blacklist_characters="\r\n\0", blacklist_categories=["Cs"]), min_size=1, max_size=8
    ).filter(lambda name: name not in ("rgb", "class", "part")),
)
def test_any_text_is_written_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, users: list[str], column: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = rows_with(**{column: users}).assign(part=["train", "test", *["train"] * (len(users) - 2)])
    found = Listing(rows, DatasetInfo("csv", ("rgb",), (column,)))
    write_table(folder, found)
    assert read_table(folder).groups[column].tolist() == users


# Classes


@pytest.mark.parametrize(
    "arguments",
    [
        ((),), (("a",), (1, 2)), (("a", "b"), (1, 1)), (("a",), (), (), ("#ffffff", "#000000")),
        (("a",), (), (), ("red-ish",)),
    ],
)  # fmt: skip
def test_classes_that_are_none_are_refused(arguments: tuple) -> None:
    with pytest.raises(ValueError, match=r"classes|colour"):
        ClassSet(*arguments)


def test_classes_go_to_json_and_back() -> None:
    classes = ClassSet(("cat", "dög"), (3, 7), (0, 255), ("#c8c8d8", "#000000"))
    assert ClassSet.of(json.loads(json.dumps(vars(classes)))) == classes
    assert ClassSet.of({"names": ["a"]}) == ClassSet(("a",))


def test_images_may_have_thousands_of_classes_but_masks_may_not(tmp_path: Path) -> None:
    many = ClassSet(tuple(map(str, range(2028))))
    rows = rows_with(part=["train", "test"]).assign(**{CLASS: [2027, 300]})
    write_table(tmp_path, Listing(rows, DatasetInfo("landmarks", ("rgb",), classes={CLASS: many})))
    assert read_table(tmp_path).labels.tolist() == [2027, 300]
    with pytest.raises(ValueError, match="mask"):
        DatasetInfo("masks", ("rgb", MASK), classes={MASK: many})
