"""Real images for tests: photographs out of a wheel, and CIFAR-10 where it is at hand."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.data.dataset import Dataset, Split, canonical

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def cifar10_folder(tmp_path_factory) -> Path:
    """Return a folder with cifar-10-batches-bin, unpacked from ../shared, or skip."""
    tool = SHARED / "tools" / "unpack_cifar10.py"
    if not tool.exists():
        pytest.skip(f"needs the CIFAR-10 copy of {SHARED}")
    folder = tmp_path_factory.mktemp("cifar10")
    subprocess.run([sys.executable, str(tool), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def photographs() -> Dataset:
    """Return 32x32 pieces of the two photographs in scikit-learn's wheel: 420 and 100 of them."""
    from sklearn.datasets import load_sample_images

    pieces = [
        photograph[row : row + 32, column : column + 32]
        for photograph in load_sample_images().images
        for row in range(0, 416, 32)
        for column in range(0, 640, 32)
    ]
    images = np.stack(pieces)
    labels = (np.arange(len(images)) % 10).astype(np.uint8)
    return canonical(
        name="photographs",
        source="scikit-learn",
        train=Split(images[:420], labels[:420]),
        test=Split(images[420:], labels[420:]),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
    )
