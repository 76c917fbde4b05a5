"""A client's folder: its own images, as they are in the whole, and nothing of others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets.table import read_table
from datasets.task_data import TaskData
from deploy import shares as module
from deploy.shares import SHARE_FILE, export_clients, read_share
from network.partition.assigning import NON_PARTICIPATING
from tests.deploy.conftest import TASK, Shares
from utils.errors import UserError


def data_of(folder: Path, shares: Shares, needs: str) -> TaskData:
    return TaskData(read_table(folder), shares.data.task, 32, torch.device("cpu"), needs=(needs,))


def test_clients_have_their_images_in_the_order_of_the_whole(shares: Shares) -> None:
    seen: list[str] = []
    for client, (own, held_out) in enumerate(zip(shares.partition.clients, shares.held_out, strict=True)):
        folder = shares.folder / f"client_{client}"
        data = data_of(folder, shares, "train")
        assert read_share(folder).client == client and len(data) == len(own) + len(held_out)
        for mine, theirs in ((data.train, own), (data.test, held_out)):
            names = [data.table.image_ids[at] for at in mine]
            assert names == [shares.data.table.image_ids[at] for at in theirs]
            if len(mine):
                found, expected = data.batch(torch.from_numpy(mine)), shares.data.batch(torch.from_numpy(theirs))
                assert torch.equal(found.images, expected.images) and torch.equal(found.target, expected.target)
                assert torch.equal(found.valid, expected.valid)
                assert np.array_equal(data.labels[mine], shares.data.labels[theirs])
        seen += data.table.image_ids
    server = data_of(shares.folder / "server", shares, "test")
    assert len(seen) == len(set(seen)) and len(server) == len(shares.data.test)
    assert [server.table.image_ids[at] for at in server.test] == [
        shares.data.table.image_ids[at] for at in shares.data.test
    ]


def test_a_folder_says_nothing_of_others_images(shares: Shares) -> None:
    own = {shares.data.table.image_ids[at] for at in shares.partition.clients[1]}
    others = set(shares.data.table.image_ids) - own - {shares.data.table.image_ids[at] for at in shares.held_out[1]}
    for path in (shares.folder / "client_1").rglob("*"):
        if path.is_file() and "runs" not in path.parts:
            content = path.read_bytes()
            assert not [name for name in others if name.encode() in content], path
    assert not [*(shares.folder / "client_1").rglob("*.png")]


def exported(shares: Shares, tmp_path: Path, **more: object) -> dict[str, Any]:
    shares.partition.save(tmp_path / "saved")
    asked = {"saved": tmp_path / "saved", "folder": tmp_path / "shares", "data_path": shares.data.table.data_path}
    return {**asked, "task": TASK, "image_size": 32, **more}


def test_a_saved_partition_is_exported(shares: Shares, tmp_path: Path) -> None:
    *clients, server = export_clients(**exported(shares, tmp_path))
    assert [read_share(folder).client for folder in clients] == [0, 1, 2] and read_share(server).client is None
    assert read_share(server).partition == read_share(shares.folder / "server").partition
    held_out = [len(data_of(folder, shares, "train").test) for folder in clients]
    assert sum(held_out) <= len(shares.data.test) and max(held_out) > 0


@pytest.mark.parametrize(
    ("more", "line"),
    [({"image_size": None}, "does not say the image_size; give --image_size"), ({"task": None}, "give --task")],
)
def test_what_a_partition_does_not_say_is_asked_for(
    more: dict[str, object], line: str, shares: Shares, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=line):
        export_clients(**exported(shares, tmp_path, **more))


def test_a_partition_that_deals_held_out_images_is_refused(shares: Shares, tmp_path: Path) -> None:
    asked = exported(shares, tmp_path)
    spoilt = shares.partition.client_of.copy()
    spoilt[shares.data.test[:2]] = 0
    type(shares.partition)(spoilt, shares.partition.groups, 3, shares.partition.origin).save(tmp_path / "saved")
    with pytest.raises(UserError, match="assigns 2 images that are in the test split"):
        export_clients(**asked)


def test_clients_that_never_train_get_no_share_that_would_be_trained_on(shares: Shares, tmp_path: Path) -> None:
    asked, assigned = exported(shares, tmp_path), shares.partition
    type(assigned)(assigned.client_of, assigned.groups, 3, {**assigned.origin, NON_PARTICIPATING: 1}).save(
        tmp_path / "saved"
    )
    with pytest.raises(UserError, match="sets 1 clients aside, which no machine has; omit --non_participating_clients"):
        export_clients(**asked)
    assert not asked["folder"].exists()


def test_a_second_export_that_is_cut_off_leaves_no_folder_that_passes_for_the_first(
    shares: Shares, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with new images would say that it is of the partition before."""
    asked = exported(shares, tmp_path)
    folders = export_clients(**asked)

    class Killed(BaseException):
        pass

    def killed(*parts: object) -> None:
        raise Killed

    monkeypatch.setattr(module, "_export", killed)
    with pytest.raises(Killed):
        export_clients(**asked)
    for folder in folders:
        with pytest.raises(UserError, match=r"share\.json is missing; run make_partition\.py --export_clients"):
            read_share(folder)


@pytest.mark.parametrize(
    "content",
    ["[]", "{}", '{"client": 3, "n_clients": 3, "partition": "a"}', '{"client": 0, "n_clients": "3", "partition": 1}'],
)
def test_a_folder_that_was_not_exported_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / SHARE_FILE).write_text(content)
    with pytest.raises(UserError, match=re.escape(str(tmp_path / SHARE_FILE))):
        read_share(tmp_path)
    assert json.loads(content) is not None
