"""Everything that speed is judged by, measured in one go: `python -m benchmarks --help`."""

import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import tyro

from parity import platforms
from parity.command import user_errors, writing
from parity.console import console
from parity.errors import UserError
from parity.files import write_atomically


def main(
    *,
    data_dir: Path | None = None,
    threads: int | None = None,
    out: Path = Path("runs/benchmarks.json"),
    quick: bool = False,
) -> None:
    """Time ours and what a user would write by hand, side by side, beside what the machine can do.

    Takes 10 to 15 minutes on two cores. Nothing else should run meanwhile.

    Args:
        data_dir: Folder that holds cifar-10-batches-bin. Default: random images of the same shape.
        threads: CPU threads of each case. Default: as many as this process has cores.
        out: File for all figures, with what they were measured on.
        quick: Show in three minutes that everything works; the figures mean nothing.
    """
    from benchmarks import images, measure, ruler, table
    from parity.data import cifar10

    if data_dir is not None and not cifar10.holds_binary(data_dir):
        raise UserError(
            f"{data_dir} holds no cifar-10-batches-bin. Name the folder that does, or leave out "
            "--data-dir to measure on random images."
        )
    cores = platforms.available_threads()
    if threads is not None and not 1 <= threads <= cores:
        raise UserError(
            f"--threads is {threads}, but this process has {cores} cores. Ask for 1 to {cores}."
        )
    threads = threads or cores
    with writing(out):  # now, not after a quarter of an hour
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()
    progress = console(stderr=True)
    begin = time.monotonic()
    with ExitStack() as stack:
        folder = data_dir
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            images.write_random(folder)
        plan = measure.QUICK if quick else measure.WHOLE
        session = measure.Session(plan, threads=threads, data_dir=folder, say=progress.print)
        figures = session.measure()
    report = {
        "date": ruler.today(),
        "machine": ruler.machine(threads),
        "images": "random" if data_dir is None else "CIFAR-10",
        "quick": quick,
        "plan": vars(plan),
        "minutes": (time.monotonic() - begin) / 60,
        "loads": session.loads,
        **figures,
    }
    text = json.dumps(report, indent=1) + "\n"
    with writing(out):
        write_atomically(out, lambda file: file.write(text.encode()))
    table.show(report)


if __name__ == "__main__":
    with user_errors():
        tyro.cli(main, prog="python -m benchmarks")
