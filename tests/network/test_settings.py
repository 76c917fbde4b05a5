"""What a federation's settings are made of."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from network.settings import (
    AdaptSettings,
    LocalSettings,
    PrivacySettings,
    SimulationSettings,
    add_federation,
    resolve_adaptation,
    resolve_local_work,
    resolve_privacy,
)
from tests.network import quadratic as q
from utils.args import Parser
from utils.errors import UserError
from utils.settings import arguments_in, recorded


def test_settings_come_from_the_arguments_and_test_mode_is_short() -> None:
    given = vars(replace(q.SETTINGS, local_epochs=3, n_rounds=50)) | {"other": 1}
    assert LocalSettings.from_config(given | {"test_mode": False}) == replace(q.SETTINGS, local_epochs=3, n_rounds=50)
    short = LocalSettings.from_config(given | {"test_mode": True})
    assert (short.steps(1000), short.n_rounds) == (2, 2)


def test_local_work_has_its_defaults_where_it_is_not_given() -> None:
    def resolved_work(**given: int) -> tuple[int, int, int | None]:
        names = ("sgd_per_epoch", "epoch_per_round", "local_epochs")
        resolved = resolve_local_work(dict.fromkeys(names) | given)
        return tuple(resolved[name] for name in names)

    assert resolved_work() == (50, 1, None) and resolved_work(local_epochs=2) == (50, 1, 2)
    assert resolved_work(sgd_per_epoch=7) == (7, 1, None) and resolved_work(epoch_per_round=3) == (50, 3, None)
    with pytest.raises(UserError, match="the place of --sgd_per_epoch and --epoch_per_round; omit one"):
        resolved_work(local_epochs=1, sgd_per_epoch=50, epoch_per_round=1)


def test_local_epochs_become_whole_batches() -> None:
    settings = replace(q.SETTINGS, local_epochs=3, batch_size=8)
    # 3 epochs of 8, 10 and 13 images are 3, 3.75 and 4.875 batches of 8, and of 2 images 3 of 2.
    assert [settings.steps(n) for n in (8, 10, 13, 2)] == [3, 4, 5, 3]


def test_every_setting_is_an_argument_or_given_by_the_script() -> None:
    parser = Parser("")
    add_federation(parser)
    config = resolve_local_work(vars(parser.parse_args([])))
    config |= {"test_mode": False, "rand_seed": 7, "checkpoint_every": 3}
    assert LocalSettings.from_config(config) == LocalSettings()
    assert SimulationSettings.from_config(config) == SimulationSettings(7, checkpoint_every=3)


def test_non_participating_clients_adapt_all_of_the_model_unless_told_otherwise() -> None:
    names = ("adapt_steps", "adapt_images", "adapt_train", "adapt_rank", "non_participating_clients", "partition_file")
    nothing = dict.fromkeys(names) | {"test_mode": False}
    given = nothing | {"adapt_steps": [5, 20]}
    with pytest.raises(
        UserError, match="--adapt_steps is for non-participating clients; give --non_participating_clients as well"
    ):
        resolve_adaptation(given)
    config = resolve_adaptation(given | {"non_participating_clients": 0.2})
    assert AdaptSettings.from_config(config) == AdaptSettings([5, 20], None, "all")
    assert AdaptSettings.from_config(config | {"test_mode": True}).adapt_steps == [2]
    for name, value in (("adapt_images", 3), ("adapt_train", "head"), ("adapt_rank", 4)):
        with pytest.raises(UserError, match=f"--{name} is read only with --adapt_steps"):
            resolve_adaptation(nothing | {name: value})
    with pytest.raises(UserError, match="--adapt_rank is read only with --adapt_train lora"):
        resolve_adaptation(config | {"adapt_rank": 4})  # of all of the model


def test_runs_without_privacy_record_nothing_of_it_and_others_what_they_were_given() -> None:
    nothing = dict.fromkeys(each.name for each in fields(PrivacySettings))
    privacy = arguments_in(PrivacySettings)
    plain = recorded(resolve_privacy({"n_rounds": 3, **nothing}), privacy)
    assert plain == {"n_rounds": 3} and PrivacySettings.from_config(plain) == PrivacySettings()
    private = recorded(resolve_privacy(nothing | {"clip_norm": math.inf}), privacy)
    assert private == {"clip_norm": math.inf, "noise_multiplier": 0.0}
    assert PrivacySettings.from_config(private) == PrivacySettings(clip_norm=math.inf, noise_multiplier=0.0)
