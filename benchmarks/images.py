"""Random images in CIFAR-10's own files: what is timed does not depend on what they show."""

from pathlib import Path

import numpy as np

from parity.data.cifar10 import BINARY_FOLDER, RECORDS_PER_FILE, TEST_FILE, TRAIN_FILES

RECORD_BYTES = 1 + 3 * 32 * 32


def write_random(folder: Path) -> None:
    """Write five training files and one for testing into `folder`/cifar-10-batches-bin."""
    random = np.random.default_rng(0)
    files = folder / BINARY_FOLDER
    files.mkdir(parents=True)
    for name in (*TRAIN_FILES, TEST_FILE):
        records = random.integers(0, 256, (RECORDS_PER_FILE, RECORD_BYTES), np.uint8)
        records[:, 0] %= 10
        records.tofile(files / name)
