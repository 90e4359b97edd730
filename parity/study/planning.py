"""From a design and a user's devices to planned runs, each known by what it computes."""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from parity import platforms
from parity.arithmetic import preset_of
from parity.config import TrainConfig
from parity.errors import UserError
from parity.platforms import Framework
from parity.study.applicable import configuration, why_not
from parity.study.design import PLACE, Design

Backend = Literal["local", "ray"]


@dataclass(frozen=True)
class Place:
    """A user's device: a device string, and for Ray the kind of accelerator that it must be."""

    device: str
    accelerator: str | None = None
    """As Ray names it: T4, A100, TPU-V6E, ...; None where any will do."""

    def __str__(self) -> str:
        return f"{self.device}@{self.accelerator}" if self.accelerator else self.device


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user chose where a design leaves a choice. Part of what the study is."""

    frameworks: tuple[Framework, ...] | None = None
    """None for the design's."""
    on: tuple[str, ...] | None = None
    """Devices, "@" and an accelerator after them; None for the design's."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings that replace those of the design's base."""


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a study, whether it can be done or not."""

    group: str
    framework: Framework
    place: Place
    stands_for: str
    """The design's name of the device."""
    levels: dict[str, Any]
    """The settings that its part of the design gives it."""
    config: TrainConfig | None
    """Without a word on threads, files and folders; None if it is not applicable."""
    reason: str | None
    """Why it is not applicable."""
    repeat: int = 1
    """The how-manieth run of this configuration in the study."""

    @property
    def identity(self) -> dict[str, Any]:
        """What decides whether two runs are one, as plain JSON values.

        Left out is what says where a run computes and where its files lie, and threads where the
        design does not set them: they are shared out by the study. Left out too are settings at
        their default, so that a setting that a later version adds leaves old runs known.
        """
        assert self.config is not None
        default = type(self.config)().to_json()
        said = {n: v for n, v in self.config.to_json().items() if n not in PLACE}
        return {
            "framework": self.framework,
            "platform": platforms.named(self.place.device, self.framework).name,
            "accelerator": self.place.accelerator,
            "config": {n: v for n, v in said.items() if v != default[n]},
            "repeat": self.repeat,
        }

    @property
    def sha256(self) -> str:
        """The SHA-256 of the identity as canonical JSON."""
        text = json.dumps(self.identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def folder(self) -> str:
        """The name of its folder: what it is, for a reader, and the hash, for certain."""
        assert self.config is not None
        place = str(self.place).replace(":", "-").replace("@", "-")
        repeat = [f"run{self.repeat}"] if self.repeat > 1 else []
        what = (self.config.dataset, self.config.arithmetic, self.config.optimizer)
        seed = f"seed{self.config.seed}"
        return "-".join((self.framework, place, *what, seed, *repeat, self.sha256[:12]))

    def __str__(self) -> str:
        said = [f"{name} {value}" for name, value in self.levels.items()]
        repeat = [f"run {self.repeat}"] if self.repeat > 1 else []
        return ", ".join((f"{self.framework} {self.place}", *said, *repeat))


def plan(design: Design, choices: Choices, backend: Backend) -> list[PlannedRun]:
    """Return a study's runs in the order of the design, frameworks innermost.

    Raises:
        UserError: If no framework knows a device, or a value makes no sense.
    """
    for name in choices.overrides:
        if any(name in block.factors for block in design.blocks):
            raise UserError(
                f"--{name.replace('_', '-')} would undo what {design.name} varies. "
                "Leave it out, or change the design."
            )
    frameworks = choices.frameworks or design.frameworks
    stand_ins = places(design, choices.on, frameworks, backend)
    base = design.base | choices.overrides
    runs: list[PlannedRun] = []
    counts: Counter[str] = Counter()
    for block in design.blocks:
        for device, levels, _, framework in itertools.product(
            block.devices or stand_ins,
            block.combinations(),
            range(block.repeats),
            frameworks,
        ):
            place = stand_ins[device]
            settings = base | levels
            reason = f"No device of --on stands for {device}."
            if place is not None:
                settings |= {"device": place.device}
                reason = why_not(
                    framework,
                    preset_of(settings) | settings,
                    here=backend == "local",
                    accelerator=place.accelerator,
                )
            run = PlannedRun(
                group=block.group,
                framework=framework,
                place=place or Place(device),
                stands_for=device,
                levels=levels,
                config=configuration(settings) if reason is None else None,
                reason=reason,
            )
            if run.config is not None:
                counts[run.sha256] += 1
                run = replace(run, repeat=counts[run.sha256])
            runs.append(run)
    return runs


def places(
    design: Design,
    on: Sequence[str] | None,
    frameworks: Sequence[Framework],
    backend: Backend,
) -> dict[str, Place | None]:
    """Return the user's device for each device of the design.

    Where the design's runs name no device, the user's devices are the design's. Where they do, a
    device of the user's that has the name of one of them stands for it alone, and the others stand
    for the rest in turn; where there are no others, nothing stands for the rest.

    Raises:
        UserError: If no framework knows a device.
    """
    given = [parse_place(text, frameworks, backend) for text in on or ()]
    if len(set(given)) < len(given):
        raise UserError(f"--on names a device twice: {','.join(map(str, given))}. Name each once.")
    if not design.devices_vary:
        own = [parse_place(text, frameworks, backend) for text in design.devices if not on]
        return {str(place): place for place in given or own}
    if not given:
        unknown = [name for name in design.devices if not _known(name, frameworks)]
        if unknown:
            raise UserError(
                f"{design.name} names the devices {', '.join(unknown)}. Say which of yours stand "
                "for them: --on cpu,cpu:avx2, or --on gpu."
            )
        return {name: parse_place(name, frameworks, backend) for name in design.devices}
    namesakes: dict[str, Place | None] = {
        name: place
        for name in design.devices
        for place in given
        if name.lower() in ((place.accelerator or "").lower(), place.device)
    }
    others = itertools.cycle([p for p in given if p not in namesakes.values()] or [None])
    return {n: namesakes[n] if n in namesakes else next(others) for n in design.devices}


def parse_place(text: str, frameworks: Sequence[Framework], backend: Backend) -> Place:
    """Return the device that "gpu:0" or, on Ray, "gpu@T4" names.

    Raises:
        UserError: If it is none, or asks the wrong backend.
    """
    device, at, accelerator = text.partition("@")
    if at and not accelerator:
        raise UserError(f"--on {text}: name an accelerator after @, such as T4.")
    if at and backend == "local":
        raise UserError(
            f"--on {text}: only Ray looks for a {accelerator}. Add --backend ray, or say {device}."
        )
    if backend == "ray" and device.partition(":")[2].isdecimal():
        raise UserError(
            f"--on {text}: Ray hands each run a device of its own, whatever its number. "
            f"Say {device.partition(':')[0]}."
        )
    if not _known(device, frameworks):
        try:
            platforms.named(device, frameworks[0])
        except UserError as error:
            raise UserError(f"--on {text}: {error}") from None
    return Place(device, accelerator or None)


def _known(device: str, frameworks: Sequence[Framework]) -> bool:
    for framework in frameworks:
        try:
            platforms.named(device, framework)
        except UserError:
            continue
        return True
    return False
