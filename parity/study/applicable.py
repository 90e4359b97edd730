"""What a run's settings come to: whether this version, framework and device can do them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from parity import platforms
from parity.config import Arithmetic, TrainConfig
from parity.errors import UserError
from parity.platforms import Framework

FIXED: dict[str, Any] = {"autotune": False, "deterministic": True, "workers": 0}
"""Settings of the article that are no choice in this version, and what every run has instead."""

ARITHMETICS_TO_COME = ("tf32", "bf16", "amp-bf16", "amp-fp16")
"""Arithmetics of the article that this version lacks."""


def why_not(framework: Framework, settings: Mapping[str, Any], *, here: bool) -> str | None:
    """Return why a run cannot be done, in words, or None if it can.

    A setting that TrainConfig comes to have is a choice from then on.

    Args:
        framework: The run's.
        settings: Fields of TrainConfig, `device` among them, and of `FIXED`.
        here: Whether the run would be on this machine, whose processor is known.
    """
    chosen = {field.name for field in fields(TrainConfig)}
    for name, always in FIXED.items():
        if name not in chosen and settings.get(name, always) != always:
            return f"{name} is always {_shown(always)} in this version."
    arithmetic = settings.get("arithmetic")
    if arithmetic in ARITHMETICS_TO_COME and arithmetic not in get_args(Arithmetic):
        return f"This version has no arithmetic {arithmetic}."
    try:
        (platforms.parse if here else platforms.named)(settings["device"], framework)
    except UserError as error:
        return str(error)
    return None


def configuration(settings: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a run that `why_not` has nothing against.

    Raises:
        UserError: If a value makes no sense on any device.
    """
    chosen = {field.name for field in fields(TrainConfig)}
    values = {n: v for n, v in settings.items() if n in chosen}
    if isinstance(names := values.get("exact_only"), str):
        values["exact_only"] = names.split(",")
    return TrainConfig.from_json(values)


def _shown(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
