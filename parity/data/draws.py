"""What the streams draw for a stretch of steps, for a device on which the images already lie.

The same batches as parity.data.pipeline makes, told in a hundredth of the bytes.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from parity import streams
from parity.architecture import NUM_FEATURES
from parity.data.dataset import Dataset


class Draws(NamedTuple):
    """Consecutive steps whose batches are of one size, n. In NumPy, or as a framework holds it."""

    chosen: Any
    """Each image's position in its split. Shape (steps, n), int32."""
    offsets: Any = None
    """Row and column of the window in the padded image. Shape (steps, n, 2), uint8. None: none."""
    flips: Any = None
    """Which crops to mirror. Shape (steps, n), bool. None where there are no crops."""
    keep_bits: Any = None
    """`streams.dropout_bits`. Shape (steps, n, NUM_FEATURES / 8), uint8. None: keep all."""


def train_draws(dataset: Dataset, *, seed: int, epoch: int, batch_size: int) -> Iterator[Draws]:
    """Yield an epoch: its whole batches, then what is left, if any."""
    order = streams.batch_order(seed, epoch, len(dataset.train_labels))
    offsets, flips = streams.augmentation(seed, epoch, dataset.num_canonical)
    done = 0
    for chosen in _stretches(order, batch_size):
        samples = dataset.train_samples[chosen]
        size = chosen.shape[1]
        bits = [
            streams.dropout_bits(seed, epoch, step, size, NUM_FEATURES)
            for step in range(done + 1, done + 1 + len(chosen))
        ]
        done += len(chosen)
        yield Draws(chosen, offsets[samples], flips[samples], np.stack(bits))


def test_draws(dataset: Dataset, *, batch_size: int) -> Iterator[Draws]:
    """Yield the test images in canonical order: whole batches, then what is left, if any."""
    for chosen in _stretches(np.arange(len(dataset.test_labels)), batch_size):
        yield Draws(chosen)


def _stretches(order: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    whole = len(order) // batch_size * batch_size
    for part, size in ((order[:whole], batch_size), (order[whole:], len(order) - whole)):
        if len(part):
            yield part.reshape(-1, size).astype(np.int32)
