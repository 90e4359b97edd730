"""The ladder's runs: one process each, through the train commands, from equal streams."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parity import arithmetic, attribution, platforms
from parity.architecture import initial_weights
from parity.attribution import Attribution, Rung
from parity.config import TrainConfig
from parity.data import cifar10, digits
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


def check(sides: tuple[Side, Side], settings: TrainConfig) -> None:
    """Find, before the first run, what would end a later one.

    Raises:
        UserError: If a framework is missing, a platform cannot be exact, or there are not so many
            cores or images.
    """
    platforms.threads(settings.threads)
    for side in sides:
        if importlib.util.find_spec(side.framework) is None:
            raise UserError(
                f"{side.framework} is not installed. Run `pip install '.[{side.framework}]'`."
            )
        if (reason := arithmetic.NO_FLOAT64.get(side.platform.kind)) is not None:
            raise UserError(
                f"{side.name} cannot be compared: {reason}, which exact operations need. "
                "Compare CPUs or GPUs."
            )
    if settings.dataset == "digits" and settings.data_dir is not None:
        raise UserError(
            f"--data-dir is {settings.data_dir}, but digits come with scikit-learn. Leave it out, "
            "or add --dataset cifar10."
        )
    num_images = {"digits": digits.NUM_TRAIN, "cifar10": cifar10.NUM_TRAIN}[settings.dataset]
    if (settings.train_size or 0) > num_images:
        raise UserError(
            f"--steps times --batch-size is {settings.train_size:,}, but {settings.dataset} has "
            f"{num_images:,} training images. Ask for fewer steps or a smaller batch."
        )


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
    if process.returncode == 2:
        raise UserError(f"{side.name}: python -m {command[2]} says: {_said(process.stderr)}")
    if process.returncode:
        said = _said(process.stderr) or f"it ended with status {process.returncode}"
        raise RunFailed(f"{side.name}, {' '.join(arguments) or settings.arithmetic}: {said}")
    return read_record(out)


def _said(stderr: str) -> str:
    """Return a command's whole message without the warnings before it; of a traceback, its end."""
    if found := re.search("^(?:error|failed): ", stderr, re.MULTILINE):
        return stderr[found.end() :].strip()
    lines = stderr.strip().splitlines()
    return "\n".join(lines[-1:] if "Traceback (most recent call last):" in lines else lines)


_PASSED_ON = (
    *("device", "threads", "dataset", "data_dir", "train_size", "test_size"),
    *("optimizer", "batch_size", "epochs", "seed", "out"),
)
"""Fields of the configuration that a run's command is given."""
