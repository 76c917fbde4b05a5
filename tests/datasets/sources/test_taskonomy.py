"""Taskonomy: its names and lists, which classes and images are taken, and what broken files say."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.sources.taskonomy import (
    View,
    available_tasks,
    list_views,
    needed_domains,
    read_buildings,
    read_class_names,
    read_scene_class,
    scene_classes,
)
from datasets.table import LEFT_OUT_FILE, Table
from tests.datasets.tables import CLASS_NAMES, select_views
from utils.errors import UserError

VIEW = View("hanson", 12, 3)
SUFFIXES = {
    "rgb": "rgb.png",
    "depth_euclidean": "depth_euclidean.png",
    "segment_semantic": "segmentsemantic.png",
    "class_scene": "class_places.npy",
}


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("domain", SUFFIXES)
def test_path_is_that_of_the_download(domain: str) -> None:
    expected = f"{domain}/taskonomy/hanson/point_12_view_3_domain_{SUFFIXES[domain]}"
    assert VIEW.path(domain).as_posix() == expected


@given(
    st.builds(View, st.from_regex(r"[a-z][\w.\-]*", fullmatch=True), st.integers(0, 10**6), st.integers(0, 99)),
    st.sampled_from(sorted(SUFFIXES)),
)
def test_parse_reads_what_path_wrote(view: View, domain: str) -> None:
    assert View.parse(view.path(domain)) == view


@pytest.mark.parametrize("name", ["passwd", "point_1_view_2.png", "point_a_view_2_domain_rgb.png", "view_2_domain_rgb"])
def test_other_file_names_are_not_parsed(name: str) -> None:
    with pytest.raises(ValueError, match="not a Taskonomy file name"):
        View.parse(f"rgb/taskonomy/hanson/{name}")


@pytest.mark.parametrize(
    "domain, other", [("class_scene", "class_scene.npy"), ("segment_semantic", "segment_semantic.png")]
)
def test_both_names_are_found_and_the_usual_one_first(tmp_path: Path, domain: str, other: str) -> None:
    assert VIEW.find(tmp_path, domain) is None
    second = write(tmp_path / domain / "taskonomy/hanson" / f"point_12_view_3_domain_{other}", b"")
    assert VIEW.find(tmp_path, domain) == second
    assert list_views(tmp_path, domain, "hanson") == [VIEW]
    first = write(tmp_path / VIEW.path(domain), b"")
    assert VIEW.find(tmp_path, domain) == first
    assert list_views(tmp_path, domain, "hanson") == [VIEW]


def test_views_are_listed_in_the_order_of_points(tmp_path: Path) -> None:
    views = [View("hanson", point, view) for point, view in ((2, 1), (10, 0), (2, 0))]
    for view in views:
        write(tmp_path / view.path("rgb"), b"")
    write(tmp_path / "rgb/taskonomy/hanson/thumbnail_domain_rgb.png", b"")
    write(tmp_path / "rgb/taskonomy/hanson/point_1_view_0_domain_normal.png", b"")
    assert list_views(tmp_path, "rgb", "hanson") == [views[2], views[0], views[1]]
    assert list_views(tmp_path, "rgb", "merom") == []


# Building lists


@pytest.mark.parametrize("newline", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path, newline: str, mark: bytes) -> None:
    lines = ["id,train,val,test", "hanson,1,0,0", "", "merom,1,0,0", "hanson,1,0,0", "klickitat,0,1,0", ""]
    path = write(tmp_path / "tiny.csv", mark + newline.join(lines).encode())
    assert read_buildings(path) == ["hanson", "merom", "klickitat"]


def test_id_may_be_any_column(tmp_path: Path) -> None:
    assert read_buildings(write(tmp_path / "a.csv", "train, id\n1, hanson\n0, merom\n")) == ["hanson", "merom"]


@pytest.mark.parametrize("name", ["../x", "..", ".", "a/b", "a\\b", "", "a b", "a\0b", "a" * 256, "ä" * 128])
def test_bad_building_names_are_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "tiny.csv", f"id,train\nhanson,1\n{name},1\n")
    with pytest.raises(UserError, match="no building name"):
        read_buildings(path)


@pytest.mark.parametrize("content", ["", "name,train\nhanson,1\n", "hanson\nmerom\n"])
def test_list_without_id_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match="column 'id'"):
        read_buildings(write(tmp_path / "tiny.csv", content))


def test_short_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        read_buildings(write(tmp_path / "tiny.csv", "train,id\n1\n"))


@pytest.mark.parametrize("content", [None, b"id\n\xff\xfe\n"])
def test_unreadable_list_names_its_argument(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tiny.csv"
    if content is not None:
        write(path, content)
    with pytest.raises(UserError, match="--client_file_name"):
        read_buildings(path)


# Class names and scene classes


@pytest.mark.parametrize("form", ["{name}", "'{name}'", '"{name}"', "{name} {index}", "  '{name}'  "])
def test_class_names_lose_quotes_index_and_letter(tmp_path: Path, form: str) -> None:
    names = ["/b/bathroom", "/f/field/wild", "plain", *(f"/x/x_{i}" for i in range(362))]
    lines = [form.format(name=name, index=index) for index, name in enumerate(names)]
    path = write(tmp_path / "names.txt", "\n".join(lines) + "\n\n")
    assert read_class_names(path) == ["bathroom", "field/wild", "plain", *(f"x_{i}" for i in range(362))]


@pytest.mark.parametrize("count", [0, 364, 366])
def test_wrong_number_of_class_names_is_refused(tmp_path: Path, count: int) -> None:
    path = write(tmp_path / "names.txt", "".join(f"/x/{i}\n" for i in range(count)))
    with pytest.raises(UserError, match=f"{count} class names where Places has 365"):
        read_class_names(path)


@pytest.mark.parametrize("shape", [(365,), (1, 365), (365, 1, 1)])
def test_scene_class_is_the_largest_logit(tmp_path: Path, shape: tuple[int, ...]) -> None:
    logits = np.random.default_rng(0).normal(size=365)
    logits[123] = 9
    np.save(tmp_path / "logits.npy", logits.reshape(shape))
    assert read_scene_class(tmp_path / "logits.npy") == 123


@pytest.mark.parametrize(
    "content",
    [
        np.zeros(364), np.full(365, np.nan), np.array([None] * 365), np.array([{}] * 365),
        np.array(["a"] * 365),
    ],
    ids=["size", "nan", "none", "pickled", "text"],
)  # fmt: skip
def test_scene_class_needs_365_finite_numbers(tmp_path: Path, content: np.ndarray) -> None:
    np.save(tmp_path / "logits.npy", content, allow_pickle=True)
    with pytest.raises(ValueError, match=r"365 finite logits|array of numbers"):
        read_scene_class(tmp_path / "logits.npy")


def logits_file(path: Path, content: bytes | None = None) -> Path:
    """Logits whose largest is that of class 364, or other bytes."""
    if content is None:
        np.save(path, np.arange(365))
    else:
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("length", [0, 5, 60, 500])
def test_truncated_scene_class_is_refused(tmp_path: Path, length: int) -> None:
    path = logits_file(tmp_path / "logits.npy")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="cannot be read"):
        read_scene_class(path)


def header_with(old: bytes, new: bytes) -> bytes:
    """A file of 365 logits with other bytes of the same number in its header."""
    buffer = io.BytesIO()
    np.save(buffer, np.arange(365))
    assert old in buffer.getvalue() and len(old) == len(new)
    return buffer.getvalue().replace(old, new, 1)


def zipped() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, logits=np.arange(365))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        header_with(b"False,", b"False("),
        b"PK\x03\x04" + bytes(500),
        zipped(),
        b"\x93NUMPY\x01\x00" + bytes(200),
        header_with(b"(365,), }       ", b"(10**12,), }    "),
        header_with(b"(365,), }            ", b"(9999999999999,), }  "),
        header_with(b"<i8", b"|O8"),
        b"\x80\x04K\x01.",
    ],
    ids=["flipped bit", "says zip", "archive", "empty header", "power", "terabytes", "objects", "pickle"],
)
def test_scene_class_with_a_broken_header_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_scene_class(logits_file(tmp_path / "logits.npy", content))


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 127), bit=st.integers(0, 7))
def test_flipped_bits_of_the_header_end_in_a_class_or_a_reason(tmp_path: Path, at: int, bit: int) -> None:
    path = logits_file(tmp_path / "logits.npy")
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    try:
        assert 0 <= read_scene_class(logits_file(path, bytes(content))) < 365
    except ValueError as error:
        assert "cannot be read" in str(error) or "365 finite logits" in str(error)


# Which classes and images are taken


def make_building(data_path: Path, name: str, places: dict[tuple[int, int], int], domains: list[str]) -> None:
    """Empty images of the views (point, view), and a list of their Places classes."""
    for domain in [*domains, "class_scene"]:
        (data_path / domain / "taskonomy" / name).mkdir(parents=True)
    for point, view in places:
        for domain in domains:
            (data_path / View(name, point, view).path(domain)).touch()
    rows = [f"point_{point}_view_{view}_domain_class_places.npy,{place}" for (point, view), place in places.items()]
    write(listing_of(data_path, name), "\n".join(["filepath,class_idx", *rows, ""]))


def listing_of(data_path: Path, building: str) -> Path:
    return data_path / "class_scene" / "taskonomy" / building / "scene_classes.csv"


def names_of(places: list[int]) -> list[str]:
    names = read_class_names(CLASS_NAMES)
    return [names[place] for place in places]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two buildings of 60 points with one to four views each."""
    path = tmp_path_factory.mktemp("uneven")
    for building in range(2):
        views = np.random.default_rng(building).integers(1, 5, 60)
        places = {(point, view): point % 3 for point in range(60) for view in range(views[point])}
        make_building(path, f"b{building}", places, ["rgb"])
    return path


def test_commonest_classes_are_kept_and_come_first(tmp_path: Path) -> None:
    # 18 classes: 300 has five images, 200 and 100 four each, the others (places 1 to 15) two each.
    counts = {300: 5, 200: 4, 100: 4, **dict.fromkeys(range(15, 0, -1), 2)}
    places = [place for place, count in counts.items() for _ in range(count)]
    make_building(tmp_path, "hanson", {(point, 0): place for point, place in enumerate(places)}, ["rgb"])
    table = select_views(tmp_path, ["hanson"], ["class_scene"])
    # Of equally common classes the smaller Places id goes first, and so 14 and 15 are left out.
    order = [300, 100, 200, *range(1, 14)]
    assert list(table.class_names) == names_of(order)
    kept = [place for place in places if place in order]
    assert [order[label] for label in table.labels] == kept
    assert not (tmp_path / LEFT_OUT_FILE).exists()  # rare classes are no fault


def test_classes_are_counted_over_all_buildings_and_images_that_are_there(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(0, 0): 7, (1, 0): 7, (2, 0): 7, (3, 0): 8}, ["rgb"])
    make_building(tmp_path, "merom", {(0, 0): 8, (1, 0): 8, (2, 0): 7}, ["rgb"])
    for point in range(3):
        (tmp_path / View("hanson", point, 0).path("rgb")).unlink()
    table = select_views(tmp_path, ["hanson", "merom"], ["class_scene"], 0.4)
    assert list(table.class_names) == names_of([8, 7])
    assert Counter(table.labels.tolist()) == {0: 3, 1: 1}
    missing = "".join(f"{View('hanson', point, 0).path('rgb')}\n" for point in range(3))
    assert (tmp_path / LEFT_OUT_FILE).read_text() == missing


def test_table_names_the_files_of_each_domain_building_and_point(tmp_path: Path) -> None:
    places = {(12, 0): 1, (12, 1): 1, (3, 0): 1, (40, 2): 1}
    domains = ["rgb", "depth_euclidean", "reshading", "segment_semantic"]
    make_building(tmp_path, "hanson", places, domains)
    older = tmp_path / View("hanson", 3, 0).path("segment_semantic")
    older.rename(older.with_name("point_3_view_0_domain_segment_semantic.png"))
    table = select_views(tmp_path, ["hanson"], ["reshading", "segment_semantic"], 0.4, max_median_depth=30.0)
    assert table.info.domains == ("rgb", "reshading", "depth_euclidean", "segment_semantic")
    views = [View("hanson", *key) for key in sorted(places)]
    for domain in domains:
        expected = [view.path(domain).as_posix() for view in views]
        if domain == "segment_semantic":
            expected[0] = expected[0].replace("segmentsemantic", "segment_semantic")
        assert list(table.cells(domain)) == expected
    assert table.groups["building"].tolist() == ["hanson"] * 4
    assert table.groups["point"].tolist() == [f"hanson/{point}" for point in (3, 12, 12, 40)]
    assert table.info.limits == {"depth_euclidean": 30 * 512}
    assert table.info.classes.keys() == {"class", "segment_semantic"}
    assert table.info.classes["segment_semantic"].void == (0,)


def test_list_of_classes_goes_before_the_logits(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(0, 0): 5}, ["rgb"])
    logits = np.zeros(365)
    logits[9] = 1
    for point in range(2):
        np.save(tmp_path / View("hanson", point, 0).path("class_scene"), logits)
    assert scene_classes(tmp_path, "hanson") == ({View("hanson", 0, 0): 5}, [])
    listing_of(tmp_path, "hanson").unlink()
    assert scene_classes(tmp_path, "hanson") == ({View("hanson", 0, 0): 9, View("hanson", 1, 0): 9}, [])


def test_views_with_unreadable_logits_are_left_out(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {}, ["rgb"])
    views = [View("hanson", point, 0) for point in range(5)]
    for view in views:
        (tmp_path / view.path("rgb")).touch()
        np.save(tmp_path / view.path("class_scene"), np.arange(365))
    broken = {1: b"\x93NUMPY", 3: header_with(b"False,", b"False("), 4: b"PK\x03\x04" + bytes(50)}
    for point, content in broken.items():
        logits_file(tmp_path / views[point].path("class_scene"), content)
    listing_of(tmp_path, "hanson").unlink()
    table = select_views(tmp_path, ["hanson"], ["class_scene"], 0.6)
    assert list(table.image_ids) == [views[point].path("rgb").as_posix() for point in (0, 2)]
    faults = (tmp_path / LEFT_OUT_FILE).read_text().splitlines()
    assert [fault.split(": ")[0] for fault in faults] == [str(views[point].path("class_scene")) for point in broken]
    assert all("cannot be read" in fault for fault in faults)
    for view in views:
        (tmp_path / view.path("class_scene")).write_bytes(b"")
    with pytest.raises(UserError, match=r"'hanson' has no scene classes.*unreadable.*point_0_view_0.*cannot be read"):
        select_views(tmp_path, ["hanson"], ["class_scene"])


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("", "needs the columns"), ("a,b\n1,2\n", "needs the columns"), ("filepath,class_idx\nx,3\n", "name: x"),
        ("filepath,class_idx\n,3\n", "not a Taskonomy file name"), ("filepath,class_idx\n{name},400\n", "in 0..364"),
        ("filepath,class_idx\n{name},\n", "whole numbers"), ("filepath,class_idx\n{name},2.5\n", "whole numbers"),
        ("filepath,class_idx\n{name},-1\n", "whole numbers"), ("filepath,class_idx\n{name},nan\n", "whole numbers"),
        ("filepath,class_idx\n{name},1e2\n", "whole numbers"), ("filepath,class_idx\n{name},inf\n", "whole numbers"),
        (f"filepath,class_idx\n{{name}},{10**30}\n", "whole numbers"),
        (f"filepath,class_idx\n{{name}},{'9' * 5000}\n", "whole numbers"),
        (f"filepath,class_idx\npoint_{'9' * 300}_view_0_domain_class_places.npy,3\n", "not a Taskonomy file name"),
        ('filepath,class_idx\n"{name},3\n{other},4\n', "EOF inside string"),
        ('filepath,class_idx\n"{name},3\n{other}",4\n', "not a Taskonomy file name"),
    ],
)  # fmt: skip
def test_broken_list_of_classes_is_named(tmp_path: Path, rows: str, text: str) -> None:
    make_building(tmp_path, "hanson", {}, ["rgb"])
    name, other = (f"point_{point}_view_0_domain_class_places.npy" for point in (0, 1))
    listing_of(tmp_path, "hanson").write_text(rows.format(name=name, other=other))
    with pytest.raises(UserError, match=rf"scene_classes\.csv.*{text}") as caught:
        scene_classes(tmp_path, "hanson")
    assert len(str(caught.value).replace(str(tmp_path), "")) < 300


def test_whole_numbers_may_be_written_as_pandas_writes_them_beside_gaps(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {}, ["rgb"])
    listing_of(tmp_path, "hanson").write_text("filepath,class_idx\na/b/point_0_view_0_domain_class_places.npy,12.0\n")
    assert scene_classes(tmp_path, "hanson") == ({View("hanson", 0, 0): 12}, [])


def test_building_without_classes_is_named(uneven: Path) -> None:
    with pytest.raises(UserError, match="'merom' has no scene classes"):
        select_views(uneven, ["b0", "merom"], ["class_scene"])


def test_no_building_at_all_is_an_error(uneven: Path) -> None:
    with pytest.raises(UserError, match="names no building; see --client_file_name"):
        select_views(uneven, [], ["class_scene"])


def test_fewer_buildings_than_asked_for_is_said(uneven: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = select_views(uneven, ["b0", "b1"], ["class_scene"], taskonomy_clients_to_include=1)
    assert set(table.groups["building"]) == {"b0"} and not capsys.readouterr().out
    table = select_views(uneven, ["b0", "b1"], ["class_scene"], taskonomy_clients_to_include=7)
    assert set(table.groups["building"]) == {"b0", "b1"}
    assert capsys.readouterr().out == "--taskonomy_clients_to_include 7: chosen.csv lists 2; all are taken\n"


def test_a_building_of_which_nothing_is_left_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_building(tmp_path, "hanson", {(point, 0): point % 16 for point in range(32)}, ["rgb"])
    make_building(tmp_path, "merom", {(0, 0): 20, (1, 0): 21}, ["rgb"])
    table = select_views(tmp_path, ["hanson", "merom"], ["class_scene"])
    assert set(table.groups["building"]) == {"hanson"}
    left_out = "left out 2 images of 2 scene classes beyond the 16 commonest"
    assert capsys.readouterr().out == f"{left_out}\nno image is left of merom\n"


# Which are held out


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5])
def test_points_are_held_out_whole_and_in_the_share_asked_for(uneven: Path, fraction: float) -> None:
    for seed in range(5):
        table = select_views(uneven, ["b0", "b1"], ["class_scene"], fraction, seed)
        sides = [{(view.building, view.point) for view in views_of(table, part)} for part in (table.train, table.test)]
        assert not sides[0] & sides[1]
        # A point has at most four views, so that not one more point fits.
        assert fraction * len(table) - 4 < len(table.test) <= fraction * len(table)


def views_of(table: Table, positions: np.ndarray) -> list[View]:
    return [View.parse(table.image_ids[position]) for position in positions]


def test_split_follows_from_the_seed(uneven: Path) -> None:
    splits = [select_views(uneven, ["b0", "b1"], ["class_scene"], 0.2, seed).test.tolist() for seed in (1, 1, 2)]
    assert splits[0] == splits[1] != splits[2]


def test_same_point_number_of_two_buildings_are_two_points(uneven: Path) -> None:
    table = select_views(uneven, ["b0", "b1"], ["class_scene"], 0.5)
    points = [{view.point for view in views_of(table, part)} for part in (table.train, table.test)]
    assert points[0] & points[1]


# Files


def test_needed_domains() -> None:
    assert needed_domains(["class_scene"]) == needed_domains(["classification"]) == ["rgb"]
    assert needed_domains(["reshading", "depth_euclidean"]) == ["rgb", "reshading", "depth_euclidean"]


def test_tasks_are_available_where_all_their_folders_are(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {}, ["rgb", "reshading", "normal"])
    assert available_tasks(tmp_path) == ["normal", "class_scene", "classification"]  # shading needs depth for its mask


def test_missing_file_leaves_its_image_out_and_is_listed(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(point, 0): 1 for point in range(5)}, ["rgb", "normal"])
    gone = tmp_path / View("hanson", 3, 0).path("normal")
    gone.unlink()
    table = select_views(tmp_path, ["hanson"], ["normal"], 0.3)
    assert (tmp_path / LEFT_OUT_FILE).read_text() == "normal/taskonomy/hanson/point_3_view_0_domain_normal.png\n"
    assert [view.point for view in views_of(table, np.arange(4))] == [0, 1, 2, 4]
    gone.touch()
    assert len(select_views(tmp_path, ["hanson"], ["normal"], 0.3)) == 5
    assert not (tmp_path / LEFT_OUT_FILE).exists()


def test_all_tasks_that_are_there_are_taken_unless_some_are_named(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(point, 0): 1 for point in range(5)}, ["rgb", "normal", "edge_texture"])
    assert select_views(tmp_path, ["hanson"], None, 0.3).info.domains == ("rgb", "normal", "edge_texture")
    assert select_views(tmp_path, ["hanson"], ["edge_texture"], 0.3).info.domains == ("rgb", "edge_texture")


def test_no_complete_image_is_an_error(tmp_path: Path) -> None:
    make_building(tmp_path, "hanson", {(0, 0): 1}, ["rgb"])
    with pytest.raises(UserError, match="no image has all of rgb, normal; the commonest error, 1 of 1: normal/"):
        select_views(tmp_path, ["hanson"], ["normal"])
