"""CIFAR-10 as TensorFlow Datasets and torchvision keep it, each read in a process of its own.

torchvision loads PyTorch, and tfds loads TensorFlow to prepare the data. Neither may enter a
training process, where it would change threads, memory and what is measured, or sit beside the
other framework. So the training process runs `python -m parity.data.library tfds FOLDER OUT.npz`
(or torchvision), which ends with status 0 and the arrays in OUT.npz, or with a message on stdout
and status 2 (what the user can put right) or 1 (anything else).
"""

import contextlib
import importlib.util
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock

from parity.data.dataset import Split
from parity.errors import RunFailed, UserError

Library = Literal["tfds", "torchvision"]

TFDS_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
TORCHVISION_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"

WAYS = f"""\
CIFAR-10 comes in three ways:
  --data-source tfds         needs `pip install '.[tfds]'` and, once, a network
  --data-source torchvision  needs `pip install '.[torch]'` and, once, a network
  --data-source binary       needs {TFDS_URL}
                             unpacked in a folder that --data-dir names
And --dataset digits needs neither network nor files."""

_NETWORK_TIMEOUT_S = 6.0
_STALLED_DOWNLOAD_S = 60.0
_CHUNK = 1_000  # records; read one by one they take twice the time


def read(library: Library, folder: Path, *, show_progress: bool) -> tuple[Split, Split]:
    """Return the training and the test split, read by `library` in a process of its own.

    Args:
        library: Which one.
        folder: Where it keeps its data sets, or will keep them.
        show_progress: Let the library's progress bars through to stderr.

    Raises:
        UserError: If the data is neither there nor to be had, or damaged.
        RunFailed: If the process fails in another way.
    """
    with tempfile.TemporaryDirectory(prefix="parity-cifar10-") as scratch:
        out = Path(scratch) / "cifar10.npz"
        child = subprocess.run(
            [sys.executable, "-m", "parity.data.library", library, folder, out],
            stdout=subprocess.PIPE,
            stderr=None if show_progress else subprocess.PIPE,
            text=True,
            errors="replace",
            # TensorFlow need not take the GPU to encode images, nor describe the processor.
            env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
            check=False,
        )
        message = child.stdout.strip()
        if child.returncode == 2 and message:
            raise UserError(message)
        if child.returncode != 0:
            last_lines = (child.stderr or "").strip().splitlines()[-3:]
            raise RunFailed(
                f"Reading CIFAR-10 through {library} from {folder} ended with status "
                f"{child.returncode}: {message or ' / '.join(last_lines) or 'no message'}\n{WAYS}"
            )
        with np.load(out) as arrays:
            return (
                Split(arrays["train_images"], arrays["train_labels"]),
                Split(arrays["test_images"], arrays["test_labels"]),
            )


def read_tfds(folder: Path) -> tuple[Split, Split]:
    """Return both splits from tfds's array_record files, which are prepared first if need be.

    Reading does without TensorFlow. Preparing needs it once, to encode the images.

    Raises:
        UserError: If the data is not prepared and cannot be, or a file is damaged.
    """
    _require_installed(("tensorflow_datasets", "array_record", "PIL"), "tfds", "Reading CIFAR-10")
    import tensorflow_datasets as tfds
    from absl import logging

    logging.set_verbosity(logging.ERROR)  # its advice to install OpenCV
    builder = tfds.builder("cifar10", data_dir=folder)
    if not builder.is_prepared():
        _require_installed(
            ("tensorflow", "importlib_resources"), "tfds", f"Preparing CIFAR-10 in {folder}"
        )
        require_network(TFDS_URL, folder)
        with _only_process(folder):
            builder = tfds.builder("cifar10", data_dir=folder)
            builder.download_and_prepare(file_format="array_record")
    return _tfds_split(builder, "train"), _tfds_split(builder, "test")


def _tfds_split(builder: Any, name: str) -> Split:
    """Return one split of a prepared tfds builder."""
    try:
        records = builder.as_data_source(split=name)
    except NotImplementedError as error:
        raise UserError(
            f"{builder.data_path} holds no array_record files, and other formats are read by "
            "TensorFlow alone. Choose another folder with --data-dir, or delete that one, to have "
            "CIFAR-10 prepared again."
        ) from error
    images = np.empty((len(records), 32, 32, 3), np.uint8)
    labels = np.empty(len(records), np.uint8)
    try:
        for start in range(0, len(records), _CHUNK):
            chunk = range(start, min(start + _CHUNK, len(records)))
            for index, record in zip(chunk, records.__getitems__(list(chunk)), strict=True):
                images[index], labels[index] = record["image"], record["label"]
    except RuntimeError as error:  # array_record's, for bytes that fail its checksums
        files = ", ".join(sorted(builder.info.splits[name].filenames))
        raise UserError(
            f"{files} in {builder.data_path} is truncated or altered ({error}). "
            "Delete that folder to have CIFAR-10 prepared again."
        ) from error
    return Split(images, labels)


def read_torchvision(folder: Path) -> tuple[Split, Split]:
    """Return both splits from torchvision's files, which are downloaded first if need be.

    They are pickles, so nothing is unpickled before its MD5 is the official one.

    Raises:
        UserError: If the data is neither there nor to be had, or a file is not the official one.
    """
    _require_installed(("torchvision",), "torch", "Reading CIFAR-10")
    extracted, archive = folder / "cifar-10-batches-py", folder / "cifar-10-python.tar.gz"
    if not extracted.is_dir() and not archive.is_file():
        require_network(TORCHVISION_URL, folder)  # before PyTorch, whose import takes seconds
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import check_integrity

    def damaged() -> list[Path]:
        official = [*CIFAR10.train_list, *CIFAR10.test_list]
        official.append([CIFAR10.meta["filename"], CIFAR10.meta["md5"]])
        return [
            extracted / name for name, md5 in official if not check_integrity(extracted / name, md5)
        ]

    if damaged():
        with _only_process(folder):
            if not extracted.is_dir():
                # torchvision sets no timeout: a stalled download would wait for ever.
                socket.setdefaulttimeout(_STALLED_DOWNLOAD_S)
                try:
                    CIFAR10(folder, download=True)
                except (OSError, RuntimeError) as error:
                    raise UserError(
                        f"Downloading {TORCHVISION_URL} to {folder} did not succeed: {error}. "
                        f"Run again to start afresh.\n{WAYS}"
                    ) from error
        if files := damaged():
            names = ", ".join(file.name for file in files)
            raise UserError(
                f"{names} in {extracted} is missing, truncated or altered: its MD5 is not the "
                "official one. Delete that folder to have CIFAR-10 downloaded again."
            )
    train, test = (CIFAR10(folder, train=train) for train in (True, False))
    return (
        Split(train.data, np.array(train.targets, np.uint8)),
        Split(test.data, np.array(test.targets, np.uint8)),
    )


def require_network(url: str, folder: Path, *, timeout_s: float = _NETWORK_TIMEOUT_S) -> None:
    """Return once `url` answers a HEAD request.

    The request runs in a thread that is left behind when it takes too long, because looking up a
    name may take longer than any timeout that a socket has.

    Raises:
        UserError: If it does not answer in time, with the ways to go on.
    """
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ask() -> None:
        request = urllib.request.Request(url, method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s):
                answers.put(None)
        except Exception as error:
            answers.put(str(getattr(error, "reason", error)))

    threading.Thread(target=ask, name="network", daemon=True).start()
    try:
        problem = answers.get(timeout=timeout_s)
    except queue.Empty:
        problem = f"no answer within {timeout_s:g} s"
    if problem is not None:
        raise UserError(
            f"{folder} holds no CIFAR-10, and {url} cannot be reached: {problem}. "
            f"Check the network and its proxy settings.\n{WAYS}"
        )


def _require_installed(modules: Sequence[str], extra: str, purpose: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"{purpose} needs {' and '.join(missing)}, not installed here. "
            f"Run `pip install '.[{extra}]'`.\n{WAYS}"
        )


def _only_process(folder: Path) -> FileLock:
    """Return the lock that keeps runs started together from downloading into the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".cifar10.lock")


def main(library: str, folder: Path, out: Path) -> int:
    """Write the four arrays that `library` reads to `out`; return the exit status."""
    readers = {"tfds": read_tfds, "torchvision": read_torchvision}
    try:
        # stdout carries the message; tfds prints there too.
        with contextlib.redirect_stdout(sys.stderr):
            train, test = readers[library](folder)
            np.savez(
                out,
                train_images=train.images,
                train_labels=train.labels,
                test_images=test.images,
                test_labels=test.labels,
            )
    except UserError as error:
        print(error)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
