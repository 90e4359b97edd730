"""The folder of a run: named, made, taken away again if nothing begins, never used twice."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from parity.config import TrainConfig
from parity.errors import UserError
from parity.platforms import Framework, Platform
from parity.runs import RECORD


def default_folder(framework: Framework, config: TrainConfig, platform: Platform) -> Path:
    """Return a new folder's path in runs/, named after what the run is."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    what = (framework, platform.name.replace(":", "-"), config.dataset, config.arithmetic)
    path = Path("runs") / "-".join((*what, config.optimizer, f"seed{config.seed}", now))
    for number in range(2, 1000):
        if not path.exists():
            break
        path = path.with_name(f"{path.name.removesuffix(f'-{number - 1}')}-{number}")
    return path


@contextmanager
def begun_or_gone(out: Path) -> Iterator[None]:
    """Make the run's folder, and take it away again if a mistake keeps the run from beginning.

    Raises:
        UserError: If the folder cannot be made or written.
    """
    made = not out.exists()
    make_folder(out)
    try:
        yield
    except UserError:
        if made and not (out / RECORD).exists():
            shutil.rmtree(out, ignore_errors=True)
        raise


def make_folder(out: Path) -> None:
    """Make the run's folder.

    Raises:
        UserError: If it cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"--out {out} cannot be written ({error.strerror}). Choose a folder that can."
        ) from None


def refuse_used(out: Path) -> None:
    """Refuse a folder that holds a run already.

    Raises:
        UserError: Says how to go on with that run, if it is not finished.
    """
    if (out / RECORD).exists():
        raise UserError(
            f"--out {out} holds a run already. Choose another folder, or go on with that run: "
            f"--resume {out}"
        )
