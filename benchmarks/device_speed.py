"""How fast a GPU trains CIFAR-10: both frameworks, the article's way, many seeds at once.

    python -m benchmarks.device_speed [--device gpu] [--out device_speed]

Under 8 minutes on one H200. Needs the installation for both frameworks, with CUDA builds. Images
are noise of CIFAR-10's size and form: no speed depends on what they show. Every case is a run of
the train commands, and times are its record's; the first epoch (compilation, first calls) is left
out and shown beside. `--device cpu --train-size 64 --test-size 16 --batch-size 16`
tests the script itself.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro

from parity.command import user_errors, writing
from parity.console import console, table
from parity.files import write_atomically
from parity.runs import RunRecord, read_record

NUM_EPOCHS = 10
"""What the target counts."""
LIMIT_S = 120
"""Of one run."""
DEADLINE_S = 480
"""Of all of them."""


class Case(NamedTuple):
    """A way to train."""

    name: str
    framework: str
    flags: tuple[str, ...]
    epochs: int
    """After the first."""


CASES = (
    Case("jax", "jax", (), NUM_EPOCHS),
    Case("torch", "torch", (), NUM_EPOCHS),
    # Four loader processes: what the article calls balanced.
    Case("article", "torch", ("--pipeline", "article", "--workers", "4"), 2),
)


class Timing(NamedTuple):
    """What a run of a case took."""

    case: str
    first_s: float
    """Training in the first epoch."""
    epochs_s: tuple[float, ...]
    """Training in each later epoch, of all runs of the program together."""
    test_s: float
    """Evaluation, median of the later epochs."""


def main(
    *,
    device: str = "gpu",
    out: Path = Path("device_speed"),
    replicas: int = 16,
    train_size: int = 50_000,
    test_size: int = 10_000,
    batch_size: int = 128,
    rounds: int = 2,
) -> None:
    """Time training on a device.

    Args:
        device: gpu, gpu:1 or cpu, as the train commands take it.
        out: New folder for data, runs and device_speed.json.
        replicas: Seeds that JAX trains in one program.
        train_size: Training images.
        test_size: Test images.
        batch_size: Images a step.
        rounds: How often the cases are repeated, in turns.
    """
    screen, begin = console(), time.monotonic()
    together = Case(f"jax x {replicas}", "jax", ("--replicas", str(replicas)), 3)
    sizes = {"train-size": train_size, "test-size": test_size}
    shared = ["--device", device, "--batch-size", str(batch_size), "--quiet"]
    shared += ["--data-source", "binary", "--data-dir", str(out / "data")]
    # Less than all is a subset, and each replica's own: then the images would lie there often.
    for name, (size, whole) in zip(sizes, ((train_size, 50_000), (test_size, 10_000)), strict=True):
        shared += [] if size == whole else [f"--{name}", str(size)]
    with writing(out):
        write_noise(out / "data" / "cifar-10-batches-bin")
    timings: list[Timing] = []
    failures: dict[str, str] = {}
    environments: dict[str, Any] = {}
    for number in range(rounds):
        for case in (*CASES, together):
            if case.name in failures or (case.epochs < NUM_EPOCHS and number):
                continue  # the slow ones once
            if time.monotonic() - begin > DEADLINE_S - LIMIT_S:
                screen.print(f"{case.name}, round {number + 1}: left out, no time")
                continue
            records = trained(case, shared, out / f"{case.name.replace(' ', '')}-{number}")
            if isinstance(records, str):
                failures[case.name] = records
                screen.print(f"{case.name}: {records}")
            else:
                timings.append(timing(case, records))
                environments[case.name] = records[0].environments[0]
                seconds = statistics.median(timings[-1].epochs_s)
                elapsed = time.monotonic() - begin
                screen.print(f"{case.name}: {seconds:.3f} s an epoch (after {elapsed:.0f} s)")
            report = {
                "schema": "training-parity/device-speed/1",
                "date": time.strftime("%Y-%m-%d %H:%M"),
                "load": os.getloadavg(),
                "device": device,
                "images": [train_size, test_size],
                "batch_size": batch_size,
                "timings": [t._asdict() for t in timings],
                "failures": failures,
                "environments": environments,
            }
            write(out / "device_speed.json", report)
    medians = show(timings)
    if device != "cpu" and (train_size, test_size, batch_size) == (50_000, 10_000, 128):
        for line in targets(medians, together.name):
            screen.print(line)
    screen.print(f"{time.monotonic() - begin:.0f} s in all; {out / 'device_speed.json'}")


def write_noise(folder: Path) -> None:
    """Write noise as CIFAR-10's binary files: a byte of label, 3,072 of pixels, 10,000 a file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        rows = random.integers(0, 256, (10_000, 1 + 3072), np.uint8)
        rows[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def trained(case: Case, shared: Sequence[str], folder: Path) -> list[RunRecord] | str:
    """Return the records of a case's run or runs, or why there are none."""
    command = [sys.executable, "-m", f"{case.framework}_impl.train", *shared, *case.flags]
    command += ["--epochs", str(1 + case.epochs), "--out", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"took more than {LIMIT_S} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1].removeprefix("error: ")
    folders = sorted(folder.glob("replica-seed*")) or [folder]
    return [read_record(each) for each in folders]


def timing(case: Case, records: Sequence[RunRecord]) -> Timing:
    """Return what a program took; its runs' records hold their shares."""
    train = [sum(r.epochs[e].train_seconds for r in records) for e in range(1 + case.epochs)]
    test = [sum(r.epochs[e].test_seconds for r in records) for e in range(1 + case.epochs)]
    return Timing(case.name, train[0], tuple(train[1:]), statistics.median(test[1:]))


def show(timings: Sequence[Timing]) -> dict[str, float]:
    """Print the table and return the seconds of training an epoch, by case."""
    rows = table("case", ">s an epoch", ">min", ">max", ">10 epochs, s", ">first, s", ">test, s")
    medians = {}
    for name in dict.fromkeys(t.case for t in timings):
        own = [t for t in timings if t.case == name]
        epochs = [seconds for t in own for seconds in t.epochs_s]
        medians[name] = statistics.median(epochs)
        firsts, tests = ([getattr(t, field) for t in own] for field in ("first_s", "test_s"))
        figures = [medians[name], min(epochs), max(epochs), NUM_EPOCHS * medians[name]]
        figures += [statistics.median(firsts), statistics.median(tests)]
        rows.add_row(name, *(f"{x:.3f}" for x in figures))
    console().print(rows)
    return medians


def targets(medians: dict[str, float], together: str) -> list[str]:
    """Return a line for each target on one H200 whose figures are there.

    Args:
        medians: Seconds of training an epoch, by case.
        together: The case of the replicas.
    """
    lines = []

    def say(what: str, figure: float, limit: float, *, at_most: bool) -> None:
        met = figure <= limit if at_most else figure >= limit
        bound = "at most" if at_most else "at least"
        lines.append(
            f"{what}: {figure:.2f}, target {bound} {limit:g}: {'met' if met else 'missed'}"
        )

    for name in ("jax", "torch"):
        if name in medians:
            say(f"{name}, s for 10 epochs", NUM_EPOCHS * medians[name], 4, at_most=True)
            if "article" in medians:
                ratio = medians["article"] / medians[name]
                say(f"the article's way / {name}", ratio, 10, at_most=False)
    if together in medians and "jax" in medians:
        say(f"{together} / jax", medians[together] / medians["jax"], 4, at_most=True)
    return lines


def write(path: Path, report: dict[str, Any]) -> None:
    """Keep what is known so far."""
    text = json.dumps(report, indent=1) + "\n"
    with writing(path):
        write_atomically(path, lambda file: file.write(text.encode()))


if __name__ == "__main__":
    with user_errors():
        tyro.cli(main, prog="python -m benchmarks.device_speed")
