"""What a node says of itself fits the federation, or it is refused."""

from __future__ import annotations

import pytest

from deploy.server_app import _check
from deploy.shares import Share
from utils.errors import UserError

SHARE = Share(None, 3, "abc")
SAID = {"client": 0, "n_clients": 3, "partition": "abc", "images": "d1", "counts": [4, 0, 7],
        "measured": [[True, False], [True, True]]}  # fmt: skip


def test_a_client_of_the_federation_is_taken() -> None:
    _check(SAID, SHARE, 3, 2)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"n_clients": 4}, "its images are of another partition than the server's"),
        ({"partition": "abd"}, "its images are of another partition than the server's"),
        ({"counts": None}, "it does not say how many images it has"),
        ({"counts": [0, 0, 0]}, "it says that it has 0 images; from 1 to 16777216 are counted"),
        ({"counts": [4, -1, 7]}, "it does not say how many images it has"),
        ({"counts": [4, True, 7]}, "it does not say how many images it has"),
        ({"counts": [11]}, "it does not say how many images it has"),  # of another length than the others'
        ({"counts": [10**13, 0, 0]}, "it says that it has 10000000000000 images; from 1 to 16777216 are counted"),
        ({"counts": [2**70, 0, 0]}, "images; from 1 to 16777216 are counted"),
        ({"images": None}, "it does not say which images it has"),
        ({"images": ["d1"]}, "it does not say which images it has"),
        ({"measured": None}, "it does not say what it can measure"),
        ({"measured": [[True, True]]}, "it does not say what it can measure"),  # of another task's metrics
        ({"measured": [[True], [True]]}, "it does not say what it can measure"),
        ({"measured": [[1, 0], [1, 0]]}, "it does not say what it can measure"),
    ],
)
def test_one_that_is_none_is_refused(changed: dict[str, object], line: str) -> None:
    with pytest.raises(UserError, match=line):
        _check(SAID | changed, SHARE, 3, 2)
