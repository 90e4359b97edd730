"""CIFAR-10 from any of its three sources, as one and the same canonical data set."""

from pathlib import Path

import numpy as np

from parity.config import DataSource
from parity.data import library
from parity.data.dataset import Dataset, Split, canonical
from parity.errors import UserError

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)

BINARY_FOLDER = "cifar-10-batches-bin"
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"

RECORDS_PER_FILE = 10_000
NUM_TRAIN = 50_000
_RECORD_BYTES = 1 + 3 * 32 * 32
_MAX_BLANK_IMAGES = 3
"""One value all over, in a file. CIFAR-10 has none; a hole in a download makes runs of them."""


def load(
    source: DataSource,
    folder: Path,
    *,
    show_progress: bool,
    records_per_file: int = RECORDS_PER_FILE,
) -> Dataset:
    """Return CIFAR-10: 50,000 training and 10,000 test images.

    Args:
        source: Its reader.
        folder: Where the source keeps its files.
        show_progress: Let a library's progress bars through to stderr.
        records_per_file: A fifth of the training images, and all the test images.

    Raises:
        UserError: If the data is not there, or damaged, or has another number of images.
        RunFailed: If a library fails in a way that is not the user's.
    """
    if source == "binary":
        train, test = read_binary(folder, records_per_file=records_per_file)
    else:
        train, test = library.read(source, folder, show_progress=show_progress)
    expected = len(TRAIN_FILES) * records_per_file, records_per_file
    if (len(train.labels), len(test.labels)) != expected:
        raise UserError(
            f"{folder} holds {len(train.labels):,} training and {len(test.labels):,} test images, "
            f"but CIFAR-10 has {expected[0]:,} and {expected[1]:,}: its {source} files are "
            "incomplete or of another data set. Delete them to have them made again, or choose "
            "another folder with --data-dir."
        )
    return canonical(name="cifar10", source=source, train=train, test=test, mean=MEAN, std=STD)


def holds_binary(folder: Path) -> bool:
    """Return whether `folder` is or holds the official binary version, whole or in part."""
    return _binary_folder(folder) is not None


def read_binary(folder: Path, *, records_per_file: int = RECORDS_PER_FILE) -> tuple[Split, Split]:
    """Return both splits from the official binary version, five training files and one for testing.

    A record is a label byte, then the red, the green and the blue plane, rows first.

    Any copy with the official layout is welcome, a re-encoded one too, so no digest is asked for
    and single changed pixels pass. A wrong length, a label above 9 and more than three images of
    one single value (in a file) are noticed.

    Args:
        folder: `cifar-10-batches-bin` or the folder that holds it.
        records_per_file: Images in each file.

    Raises:
        UserError: If a file is missing, truncated or altered, with its name.
    """
    files = _binary_folder(folder)
    if files is None:
        raise UserError(f"{folder} holds no CIFAR-10 in its binary version.\n{library.WAYS}")
    images = np.empty((len(TRAIN_FILES), records_per_file, 32, 32, 3), np.uint8)
    labels = np.empty((len(TRAIN_FILES), records_per_file), np.uint8)
    for index, name in enumerate(TRAIN_FILES):
        images[index], labels[index] = _read_file(files / name, records_per_file)
    train = Split(images.reshape(-1, 32, 32, 3), labels.reshape(-1))
    return train, _read_file(files / TEST_FILE, records_per_file)


def _binary_folder(folder: Path) -> Path | None:
    for candidate in (folder / BINARY_FOLDER, folder):
        if any((candidate / name).exists() for name in (*TRAIN_FILES, TEST_FILE)):
            return candidate
    return None


def _read_file(path: Path, num_records: int) -> Split:
    """Return the records of one binary file.

    Raises:
        UserError: If the file is not `num_records` sound records, with its name.
    """
    unpack_again = f"Unpack {library.TFDS_URL} again, or name its folder with --data-dir."
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. {unpack_again}") from error
    if content.size != num_records * _RECORD_BYTES:
        raise UserError(
            f"{path} has {content.size:,} bytes, but {num_records:,} records of {_RECORD_BYTES:,} "
            f"bytes are {num_records * _RECORD_BYTES:,}: it is truncated or not the official file. "
            f"{unpack_again}"
        )
    records = content.reshape(num_records, _RECORD_BYTES)
    labels, pixels = records[:, 0], records[:, 1:]
    if labels.max() > 9:
        record = int(np.argmax(labels > 9))
        raise UserError(
            f"{path} is altered: the label of record {record} (from 0) is {labels[record]}, but "
            f"CIFAR-10's are 0 to 9. {unpack_again}"
        )
    num_blank = int((pixels == pixels[:, :1]).all(axis=1).sum())
    if num_blank > _MAX_BLANK_IMAGES:
        raise UserError(
            f"{path} is damaged: {num_blank:,} of its images are one single value all over, as "
            f"where a download left a hole. {unpack_again}"
        )
    return Split(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels)
