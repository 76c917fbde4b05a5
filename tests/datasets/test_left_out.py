"""What is left out, counted by reason."""

from __future__ import annotations

import pytest

from datasets.left_out import by_reason, in_a_line, main_error, reason_of

FAULTS = [
    "label/a.png: there is no such mask",
    "images/a.jpg: box 0.100 0.000 0.037 0.050 has no area",
    "label/b 2.png: there is no such mask",
    "images/c.jpg: box -0.100 1e-05 0.037 7 has no area",
    "label/c.png: there is no such mask",
    "d.png: not a readable image (cannot identify image file '/tmp/d.png')",
]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (FAULTS[0], FAULTS[2]),
        (FAULTS[1], FAULTS[3]),
        ("images.csv, line 3: img/a.jpg: no such file", "images.csv, line 14: b.jpg: no such file"),
        (
            "a.png: 12 x 12 pixels, another shape than its photograph's 16 x 12",
            "b.png: 9 x 1 pixels, another shape than its photograph's 64 x 480",
        ),
        ("rgb/a/point_1.png", "rgb/b/point_2.png"),
        (
            "images/b.jpg: no labels/b.txt says which objects it shows",
            "images/c.jpg: no labels/c.txt says which objects it shows",
        ),
        (FAULTS[5], "e.tif: not a readable image (broken data stream)"),
    ],
)
def test_faults_of_one_reason_are_counted_together(first: str, second: str) -> None:
    assert reason_of(first) == reason_of(second) and len(by_reason([first, second])) == 1


def test_reasons_come_commonest_first() -> None:
    assert [n for _, n in by_reason(FAULTS)] == [3, 2, 1]
    assert (
        main_error(FAULTS[1:]) == "; the commonest error, 2 of 5: images/a.jpg: box 0.100 0.000 0.037 0.050 has no area"
    )
    assert main_error([]) == ""
    assert in_a_line(FAULTS).startswith("3 × there is no such mask; 2 × box … … … … has no area; 1 × not a readable")
    assert in_a_line([f"a: {letter}" for letter in "abcdef"]).endswith("; and 2 other reasons")
