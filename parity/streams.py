"""Counter-based random streams: everything random in a run, made alike for both frameworks.

Every number is a pure function of (seed, purpose, position), so any epoch, step, sample or tensor
can be made alone, in any order, by any number of workers. Only Philox's raw output is used: NumPy
keeps it stable, while the methods of its Generator may change between releases (NEP 19).
"""

import hashlib
import math
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

VERSION = 1
"""Goes into every fingerprint; raise it when a stream changes on purpose."""

PADDING = 4
"""Pixels of zero padding around an image before the random crop."""

_NUM_OFFSETS = 2 * PADDING + 1


class Purpose(IntEnum):
    """What a stream is for: the second half of the Philox key."""

    INITIAL_WEIGHTS = 1
    TRAIN_SUBSET = 2
    TEST_SUBSET = 3
    BATCH_ORDER = 4
    AUGMENTATION = 5
    DROPOUT = 6


def raw(seed: int, purpose: Purpose, major: int, minor: int, size: int) -> np.ndarray:
    """Return `size` raw 64-bit words of the stream at position (major, minor), uint64.

    The Philox key is (seed, purpose); major and minor are the upper half of its 256-bit counter, so
    streams of different positions never overlap.

    Source: Salmon et al. 2011, doi:10.1145/2063384.2063405 (Philox4x64-10).
    """
    counter = np.array([0, 0, minor, major], dtype=np.uint64)
    return np.random.Philox(key=np.array([seed, purpose], np.uint64), counter=counter).random_raw(
        size
    )


def _permutation(words: np.ndarray) -> np.ndarray:
    return np.argsort(words, kind="stable")


def initial_weight(seed: int, name: str, shape: Sequence[int], fan_in: int) -> np.ndarray:
    """Return one tensor's initial values, float32: uniform within +-1/sqrt(fan_in).

    This is what PyTorch's Linear and Conv2d draw, weights and biases alike, from another generator.
    The stream's position is the tensor's name, so a tensor does not depend on the others.
    """
    position = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    words = raw(seed, Purpose.INITIAL_WEIGHTS, position, 0, math.prod(shape))
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0  # 53 bits, in [-1, 1)
    return (unit * (1.0 / math.sqrt(fan_in))).astype(np.float32).reshape(shape)


def subset(seed: int, purpose: Purpose, num_samples: int, size: int) -> np.ndarray:
    """Return the canonical indices of a random subset, ascending. Shape (size,), int64."""
    return np.sort(_permutation(raw(seed, purpose, 0, 0, num_samples))[:size])


def batch_order(seed: int, epoch: int, num_samples: int) -> np.ndarray:
    """Return the order in which an epoch (from 1) visits the samples. Shape (num_samples,)."""
    return _permutation(raw(seed, Purpose.BATCH_ORDER, epoch, 0, num_samples))


def augmentation(seed: int, epoch: int, num_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the crop offsets and flips of every canonical sample in an epoch (from 1).

    Sample i uses word i alone, so a subset of the samples sees what the whole set would.

    Returns:
        Offsets (row, column) of the 32x32 window in the padded image, 0 to 2 * PADDING. Shape
        (num_samples, 2), uint8; and whether the crop is mirrored. Shape (num_samples,), bool.
    """
    words = raw(seed, Purpose.AUGMENTATION, epoch, 0, num_samples)
    # 31 bits times 9, shifted: each offset's chance is 1/9 to within 2**-31.
    fields = np.stack([words >> np.uint64(33), words >> np.uint64(2) & np.uint64(0x7FFF_FFFF)], 1)
    offsets = (fields * np.uint64(_NUM_OFFSETS) >> np.uint64(31)).astype(np.uint8)
    return offsets, (words & np.uint64(1)).astype(bool)


def dropout_mask(seed: int, epoch: int, step: int, num_rows: int, num_features: int) -> np.ndarray:
    """Return which features a step (from 1 in its epoch) keeps, at rate 0.5.

    One bit a feature; row r begins at word r * num_features / 64, so a shard of the batch can make
    its own rows. `num_features` is a multiple of 64. Shape (num_rows, num_features), bool.
    """
    packed = dropout_bits(seed, epoch, step, num_rows, num_features)
    return np.unpackbits(packed, axis=1, bitorder="little").view(bool)


def dropout_bits(seed: int, epoch: int, step: int, num_rows: int, num_features: int) -> np.ndarray:
    """Return `dropout_mask` as bits, the lowest first. Shape (rows, num_features / 8), uint8."""
    words = raw(seed, Purpose.DROPOUT, epoch, step, num_rows * num_features // 64)
    return words.astype("<u8").view(np.uint8).reshape(num_rows, num_features // 8)


def fingerprint(seed: int, samples: np.ndarray, num_canonical: int, batch_size: int) -> str:
    """Return the SHA-256 that names the streams of a run: equal names, equal streams.

    It digests what the streams really yield for the first epoch and its first step.

    Args:
        seed: The run's seed.
        samples: Canonical indices of the training images. Shape (n,).
        num_canonical: Size of the whole training set.
        batch_size: Images a step.
    """
    offsets, flips = augmentation(seed, 1, num_canonical)
    digest = hashlib.sha256(f"streams {VERSION} seed {seed} batch {batch_size}".encode())
    for part in (
        samples.astype("<i8"),
        batch_order(seed, 1, len(samples)).astype("<i8"),
        offsets,
        flips,
        dropout_mask(seed, 1, 1, batch_size, 64),
    ):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
