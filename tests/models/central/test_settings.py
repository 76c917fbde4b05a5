"""What a central training's settings are made of."""

from __future__ import annotations

from dataclasses import asdict, replace

from models.central.settings import TrainSettings


def test_settings_come_from_the_arguments_and_test_mode_is_short() -> None:
    wanted = TrainSettings(7, n_epochs=30, init_lr=0.3, augment="flip")
    config = asdict(wanted) | {"other": 1, "test_mode": False}
    assert TrainSettings.from_config(config) == wanted
    assert TrainSettings.from_config(config | {"test_mode": True}) == replace(wanted, n_epochs=2)
