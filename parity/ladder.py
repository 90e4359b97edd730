"""The ladder's runs: one process each, through the train commands, from equal streams."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity import attribution, platforms
from parity.architecture import initial_weights
from parity.attribution import Attribution, Rung
from parity.config import TrainConfig
from parity.errors import RunFailed, UserError
from parity.exact.operations import OPERATIONS
from parity.flags import flags
from parity.platforms import Framework, Platform
from parity.runs import RunRecord, read_record

Progress = Callable[[int, int, str], None]
"""Hears of a run that begins: its number, the number of all, what it is."""


@dataclass(frozen=True)
class Side:
    """A framework on a platform."""

    framework: Framework
    platform: Platform

    @property
    def name(self) -> str:
        """As it is typed: torch:cpu, jax:gpu:0."""
        return f"{self.framework}:{self.platform.name}"


def parse_side(text: str) -> Side:
    """Return what FRAMEWORK:PLATFORM means.

    Raises:
        UserError: If there is no such framework or platform.
    """
    framework, _, device = text.partition(":")
    if framework not in platforms.KINDS or not device:
        raise UserError(
            f"{text!r} is no framework on a platform. Write FRAMEWORK:PLATFORM, the framework one "
            f"of {', '.join(platforms.KINDS)}, such as torch:cpu, torch:cpu:avx2 or jax:gpu."
        )
    return Side(framework, platforms.parse(device, framework))


def parse_sides(first: str, second: str) -> tuple[Side, Side]:
    """Return two sides.

    Raises:
        UserError: If one is none, or both are one.
    """
    sides = parse_side(first), parse_side(second)
    if sides[0] == sides[1]:
        raise UserError(
            f"Both are {sides[0].name}, which cannot differ from itself. Give another framework "
            "or platform: on an x86-64 processor, cpu:avx2 is another platform than cpu:sse4."
        )
    return sides


def climb(
    sides: tuple[Side, Side],
    settings: TrainConfig,
    operations: Sequence[str],
    folder: Path,
    progress: Progress,
) -> Attribution:
    """Do the runs and return what they show; without a difference in float32, only the first two.

    Args:
        sides: What to compare.
        settings: Of every run; device, arithmetic, exact_only and out are set here.
        operations: Those to leave native alone.
        folder: Where the runs go: float32/torch-cpu, dot/torch-cpu, ..., exact/jax-cpu.
        progress: Hears of every run.

    Raises:
        UserError: If a side cannot compute here: names it, with its own message.
        RunFailed: If a run fails.
    """
    num_runs = 2 * (len(operations) + 2)
    count = 0

    def pair(name: str, what: str, native: tuple[str, ...], arguments: list[str]) -> Rung:
        nonlocal count
        records = []
        for side in sides:
            count += 1
            progress(count, num_runs, f"{side.name}, {what}")
            out = folder / name / side.name.replace(":", "-")
            records.append(run(side, settings, arguments, out))
        return compare(native, *records)

    everything = pair("float32", "float32", tuple(OPERATIONS), [])
    alone, nothing = [], None
    if not everything.bitwise:
        nothing = pair("exact", "exact", (), ["--arithmetic", "exact"])
        for operation in operations:
            others = [name for name in OPERATIONS if name != operation]
            arguments = ["--exact-only", ",".join(others)]
            alone.append(pair(operation, f"exact but {operation}", (operation,), arguments))
    return Attribution(
        sides=(sides[0].name, sides[1].name),
        num_steps=-(-(settings.train_size or 0) // settings.batch_size),
        everything=everything,
        alone=tuple(alone),
        nothing=nothing,
    )


def compare(native: tuple[str, ...], a: RunRecord, b: RunRecord) -> Rung:
    """Return how two finished runs differ.

    Raises:
        UserError: If a file is not the one that the run wrote.
    """
    assert a.fingerprints == b.fingerprints, "equal settings give equal data and streams"
    weights = a.final_weights(), b.final_weights()
    assert weights[0] is not None, "the run is finished"
    assert weights[1] is not None, "the run is finished"
    return attribution.measure(
        native,
        (a.step_losses(), b.step_losses()),
        (weights[0], weights[1]),
        initial_weights(a.config.seed),
    )


def run(side: Side, settings: TrainConfig, arguments: Sequence[str], out: Path) -> RunRecord:
    """Train in a process of its own and return the record.

    Raises:
        UserError: If the side cannot compute here.
        RunFailed: If the run fails.
    """
    values = settings.to_json() | {"device": side.platform.name, "out": str(out)}
    named = flags({name: values[name] for name in _PASSED_ON})
    command = [sys.executable, "-m", f"{side.framework}_impl.train", *named, *arguments, "--quiet"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"status {process.returncode}"]
        kind, _, message = lines[-1].partition(": ")
        if (process.returncode, kind) == (2, "error"):
            if "--train-size" in message:
                message += " Here --train-size is --steps times --batch-size."
            raise UserError(f"{side.name} cannot be compared: {message}")
        raise RunFailed(f"{side.name}, {' '.join(arguments)}: {lines[-1]}")
    return read_record(out)


_PASSED_ON = (
    *("device", "threads", "dataset", "data_dir", "train_size", "test_size"),
    *("optimizer", "batch_size", "epochs", "seed", "out"),
)
"""Fields of the configuration that a run's command is given."""
