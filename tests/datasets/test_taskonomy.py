"""Taskonomy's names and lists: file names, building lists, class names, scene-class logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.taskonomy import View, list_views, read_buildings, read_class_names, read_scene_class
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


@pytest.mark.parametrize("name", ["../x", "..", ".", "a/b", "a\\b", "", "a b", "a\0b"])
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


@pytest.mark.parametrize("length", [0, 5, 60, 500])
def test_truncated_scene_class_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "logits.npy"
    np.save(path, np.zeros(365))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="cannot be read"):
        read_scene_class(path)
