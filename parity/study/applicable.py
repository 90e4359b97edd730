"""What a run's settings come to: whether this framework and device can do them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from parity import arithmetic, commas, platforms
from parity.arithmetic import CAPABILITIES, Device
from parity.config import TrainConfig
from parity.errors import UserError
from parity.platforms import Framework, Platform


def why_not(
    framework: Framework,
    settings: Mapping[str, Any],
    *,
    here: bool,
    accelerator: str | None = None,
) -> str | None:
    """Return why a run cannot be done, in words, or None if it can, as far as can be told.

    Args:
        framework: The run's.
        settings: Fields of TrainConfig, `device` among them.
        here: Whether the run would be on this machine, whose processor and GPU are known.
        accelerator: Elsewhere, Ray's name of the device's kind.
    """
    try:
        platform = (platforms.parse if here else platforms.named)(settings["device"], framework)
    except UserError as error:
        return str(error)
    elsewhere = Device(platform=platform, capability=CAPABILITIES.get(accelerator or ""))
    return arithmetic.why_not(framework, _this(platform) if here else elsewhere, _split(settings))


@cache  # asks nvidia-smi
def _this(platform: Platform) -> Device:
    gpu = platform.kind == "gpu"
    return arithmetic.this_machines(
        platform, platforms.gpu_capability(platform.index) if gpu else None
    )


def configuration(settings: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a run that `why_not` has nothing against.

    Raises:
        UserError: If a value makes no sense on any device.
    """
    return TrainConfig.from_json(_split(settings))


def _split(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with names in place of names joined by commas."""
    names = settings.get("exact_only")
    return dict(settings) | ({"exact_only": commas.split(names)} if isinstance(names, str) else {})
