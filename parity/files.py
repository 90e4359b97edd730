"""Files that are either whole or not there: written aside, flushed, renamed."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Call `write` with a binary file whose content then replaces `path` in one step.

    A reader sees the old file or the new one, whatever happens in between, a full disk or a power
    cut included.

    Raises:
        OSError: If the disk is full or the folder cannot be written; `path` is as it was.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system can flush a folder."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
