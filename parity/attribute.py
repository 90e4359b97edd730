"""Say which operation makes two platforms or frameworks differ: `python -m parity.attribute A B`.

parity.attribution says what is measured, and what it can and cannot tell.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import tyro

from parity import commas
from parity.command import user_errors
from parity.config import DatasetName, OptimizerName, TrainConfig
from parity.errors import UserError
from parity.exact.operations import OPERATIONS

if TYPE_CHECKING:
    from rich.table import Table

    from parity.attribution import Attribution, Rung


def attribute(
    a: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")],
    b: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B")],
    *,
    operations: tuple[str, ...] = tuple(OPERATIONS),
    steps: int = 2,
    optimizer: OptimizerName = "adam",
    batch_size: int = 32,
    dataset: DatasetName = "digits",
    data_dir: Path | None = None,
    seed: int = 42,
    threads: int | None = None,
    out: Path | None = None,
    quiet: bool = False,
) -> None:
    """Say which operation makes two platforms or frameworks differ.

    Trains a few steps on both with every operation native, with none, and with one at a time while
    the others are exact, so that it is the only source of a difference.

    Args:
        a: A framework on a platform: torch:cpu, torch:cpu:avx2, jax:gpu, ...
        b: Another one.
        operations: Those to try.
        steps: Training steps. Few, because every difference grows until all are alike.
        optimizer: As for training.
        batch_size: Images a step.
        dataset: As for training; digits need no download.
        data_dir: Folder of CIFAR-10.
        seed: As for training.
        threads: CPU threads of the framework. Default: as many as this process has cores.
        out: Keep the runs and attribution.json in this folder. Default: keep nothing.
        quiet: Print the result alone, no progress.
    """
    # Not at the top: --help need not wait for NumPy.
    from parity import ladder
    from parity.progress import duration

    sides = ladder.parse_sides(a, b)
    _check(operations, steps)
    settings = TrainConfig(
        threads=threads,
        dataset=dataset,
        data_dir=data_dir,
        test_size=1,
        optimizer=optimizer,
        batch_size=batch_size,
        epochs=1,
        seed=seed,
    )
    settings = replace(settings, train_size=steps * batch_size)  # after the check of batch_size
    ladder.check(sides, settings)
    begin = time.monotonic()

    def progress(number: int, num_runs: int, what: str) -> None:
        done = number - 1
        left = (time.monotonic() - begin) / done * (num_runs - done) if done else None
        time_left = "" if left is None else f", {duration(left)} left"
        print(f"run {number} of {num_runs}: {what}{time_left}", file=sys.stderr, flush=True)

    with TemporaryDirectory() as temporary, complete_or_empty(out or Path(temporary)) as folder:
        heard = (lambda *_: None) if quiet else progress
        attribution = ladder.climb(sides, settings, operations, folder, heard)
        if out is not None:
            write(out, attribution)
    show(attribution)


def _check(operations: tuple[str, ...], steps: int) -> None:
    if steps < 1:
        raise UserError(f"--steps is {steps}, but must be at least 1.")
    if not operations:
        raise UserError(f"--operations is none. Choose from {', '.join(OPERATIONS)}.")
    for name in operations:
        if name not in OPERATIONS or operations.count(name) > 1:
            problem = "named more than once" if name in OPERATIONS else "no operation"
            raise UserError(
                f"--operations: {name!r} is {problem}. Choose from {', '.join(OPERATIONS)}, joined "
                "by commas."
            )


@contextmanager
def complete_or_empty(folder: Path) -> Iterator[Path]:
    """Make a folder; if what is done in it fails, leave it as it was found, for the next try.

    Raises:
        UserError: If it cannot be made or written, or holds something.
    """
    from parity.folders import make_folder

    made = not folder.exists()
    make_folder(folder)
    refuse_used(folder)
    try:
        yield folder
    except BaseException:
        for path in [folder] if made else list(folder.iterdir()):
            shutil.rmtree(path, ignore_errors=True)
        raise


def refuse_used(folder: Path) -> None:
    """Refuse a folder that holds something already.

    Raises:
        UserError: Says so.
    """
    if any(folder.iterdir()):
        raise UserError(f"--out {folder} is not empty. Choose another folder, or empty this one.")


def write(out: Path, attribution: "Attribution") -> None:
    """Write attribution.json, atomically.

    Raises:
        UserError: If it cannot be written.
    """
    import json

    from parity.command import writing
    from parity.files import write_atomically

    text = json.dumps(attribution.to_json(), indent=1, allow_nan=False) + "\n"
    with writing(out):
        write_atomically(out / "attribution.json", lambda file: file.write(text.encode()))


def show(attribution: "Attribution") -> None:
    """Print the table and the verdict."""
    from parity.attribution import in_words
    from parity.console import console

    screen = console()
    a, b = attribution.sides
    steps = f"{attribution.num_steps} step{'s' if attribution.num_steps > 1 else ''}"
    screen.print(f"{a} against {b}, {steps}")
    screen.print(table(attribution))
    screen.print(in_words(attribution))


def table(attribution: "Attribution") -> "Table":
    """Return the ladder as a table."""
    from parity.attribution import share_in_words
    from parity.console import table

    rows = table(
        *("native", ">loss differs\nfrom step", ">by, relative", ">weights that\ndiffer, %"),
        *(">typical tensor\ndiffers by", ">farthest\ntensor", ">alone, of\nfloat32's"),
    )

    def add(name: str, rung: "Rung", share: float | None) -> None:
        step = rung.first_step
        rows.add_row(
            name,
            "never" if step is None else str(step.step),
            _small(rung.loss),
            f"{rung.values_percent:.2f}",
            _small(rung.typical),
            _small(rung.farthest),
            "" if share is None else share_in_words(share),
        )

    add("all (float32)", attribution.everything, None)
    for rung in attribution.alone:
        add(rung.native[0], rung, attribution.share(rung))
    if attribution.nothing is not None:
        add("none (exact)", attribution.nothing, None)
    return rows


def _small(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def main() -> None:
    """Run the command line."""
    with user_errors():
        commas.refuse_repeats("--operations", sys.argv[1:])
        try:
            tyro.cli(attribute, prog="python -m parity.attribute", registry=commas.registry())
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            sys.exit(130)


if __name__ == "__main__":
    main()
