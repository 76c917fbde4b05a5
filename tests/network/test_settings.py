"""What a federation's settings are made of."""

from __future__ import annotations

import math
from argparse import Namespace
from dataclasses import fields, replace

import pytest

from network.settings import (
    AdaptSettings,
    LocalSettings,
    PrivacySettings,
    SimulationSettings,
    add_federation,
    settle_adaptation,
    settle_local_work,
    settle_privacy,
)
from tests.network import quadratic as q
from utils.args import Parser
from utils.errors import UserError


def test_settings_come_from_the_arguments_and_test_mode_is_short() -> None:
    given = vars(replace(q.SETTINGS, local_epochs=3, n_rounds=50)) | {"other": 1}
    assert LocalSettings.of(Namespace(**given, test_mode=False)) == replace(q.SETTINGS, local_epochs=3, n_rounds=50)
    short = LocalSettings.of(Namespace(**given, test_mode=True))
    assert (short.steps(1000), short.n_rounds) == (2, 2)


def test_local_work_has_its_defaults_where_it_is_not_given() -> None:
    def settled(**given: int) -> tuple[int, int, int | None]:
        args = Namespace(**{"sgd_per_epoch": None, "epoch_per_round": None, "local_epochs": None} | given)
        settle_local_work(args)
        return args.sgd_per_epoch, args.epoch_per_round, args.local_epochs

    assert settled() == (50, 1, None) and settled(local_epochs=2) == (50, 1, 2)
    assert settled(sgd_per_epoch=7) == (7, 1, None) and settled(epoch_per_round=3) == (50, 3, None)
    with pytest.raises(UserError, match="the place of --sgd_per_epoch and --epoch_per_round; omit one"):
        settled(local_epochs=1, sgd_per_epoch=50, epoch_per_round=1)


def test_local_epochs_become_whole_batches() -> None:
    settings = replace(q.SETTINGS, local_epochs=3, batch_size=8)
    # 3 epochs of 8, 10 and 13 images are 3, 3.75 and 4.875 batches of 8, and of 2 images 3 of 2.
    assert [settings.steps(n) for n in (8, 10, 13, 2)] == [3, 4, 5, 3]


def test_every_setting_is_an_argument_or_given_by_the_script() -> None:
    parser = Parser("")
    add_federation(parser)
    args = parser.parse_args([])
    settle_local_work(args)
    args.test_mode, args.rand_seed, args.checkpoint_every = False, 7, 3
    assert LocalSettings.of(args) == LocalSettings()
    assert SimulationSettings.of(args) == SimulationSettings(7, checkpoint_every=3)


def test_unseen_clients_adapt_all_of_the_model_unless_told_otherwise() -> None:
    none = {"unseen_clients": None, "partition_file": None}
    args = Namespace(adapt_steps=[5, 20], adapt_images=None, adapt_train=None, adapt_rank=None, test_mode=False, **none)
    with pytest.raises(UserError, match="--adapt_steps is for unseen clients; give --unseen_clients as well"):
        settle_adaptation(args)
    args.unseen_clients = 0.2
    settle_adaptation(args)
    assert AdaptSettings.of(args) == AdaptSettings([5, 20], None, "all")
    args.test_mode = True
    assert AdaptSettings.of(args).adapt_steps == [2]
    for name, value in (("adapt_images", 3), ("adapt_train", "head"), ("adapt_rank", 4)):
        alone = Namespace(
            **{"adapt_steps": None, "adapt_images": None, "adapt_train": None, "adapt_rank": None} | {name: value}
        )
        with pytest.raises(UserError, match=f"--{name} is read only with --adapt_steps"):
            settle_adaptation(alone)
    args.adapt_rank = 4  # of all of the model
    with pytest.raises(UserError, match="--adapt_rank is read only with --adapt_train lora"):
        settle_adaptation(args)


def test_runs_without_privacy_record_nothing_of_it_and_others_what_they_were_given() -> None:
    nothing = dict.fromkeys(each.name for each in fields(PrivacySettings))
    plain = Namespace(n_rounds=3, **nothing)
    settle_privacy(plain)
    assert vars(plain) == {"n_rounds": 3} and PrivacySettings.of(plain) == PrivacySettings()
    private = Namespace(**nothing | {"clip_norm": math.inf})
    settle_privacy(private)
    assert vars(private) == {"clip_norm": math.inf, "noise_multiplier": 0.0}
    assert PrivacySettings.of(private) == PrivacySettings(clip_norm=math.inf, noise_multiplier=0.0)
