"""Dataset: two splits of images as canonical arrays, alike whatever reader they came through."""

import hashlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from parity import streams
from parity.errors import UserError
from parity.streams import Purpose


class Split(NamedTuple):
    """The images of one split, in any order."""

    images: np.ndarray
    """Rows first, channels last. Shape (n, 32, 32, 3), uint8."""
    labels: np.ndarray
    """Classes, 0 to 9. Shape (n,), uint8."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """What a run trains and tests on, in canonical order. Its arrays become read-only."""

    name: str
    """cifar10 or digits."""

    source: str
    """The reader; it leaves no trace in the arrays."""

    train_images: np.ndarray
    """Shape (n, 32, 32, 3), uint8."""

    train_labels: np.ndarray
    """Classes, 0 to 9. Shape (n,), uint8."""

    test_images: np.ndarray
    """Shape (m, 32, 32, 3), uint8."""

    test_labels: np.ndarray
    """Classes, 0 to 9. Shape (m,), uint8."""

    train_samples: np.ndarray
    """Each training image's index in the whole canonical training set, ascending. Augmentation is
    keyed by it, so an image is cropped alike in a subset and in the whole. Shape (n,), int64."""

    num_canonical: int
    """Images of the whole training set."""

    mean: tuple[float, float, float]
    """Of each channel, for normalisation, where 1 is the largest pixel value."""

    std: tuple[float, float, float]
    """Of each channel, for normalisation, where 1 is the largest pixel value."""

    def __post_init__(self) -> None:
        for images, labels in (
            (self.train_images, self.train_labels),
            (self.test_images, self.test_labels),
        ):
            assert images.shape == (len(labels), 32, 32, 3)
            assert images.dtype == labels.dtype == np.uint8
        assert self.train_samples.shape == self.train_labels.shape
        for array in _arrays(self):
            array.flags.writeable = False


def canonical(
    *,
    name: str,
    source: str,
    train: Split,
    test: Split,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
) -> Dataset:
    """Return the whole data set, each split in canonical order."""
    train, test = in_canonical_order(train), in_canonical_order(test)
    return Dataset(
        name=name,
        source=source,
        train_images=train.images,
        train_labels=train.labels,
        test_images=test.images,
        test_labels=test.labels,
        train_samples=np.arange(len(train.labels), dtype=np.int64),
        num_canonical=len(train.labels),
        mean=mean,
        std=std,
    )


def in_canonical_order(split: Split) -> Split:
    """Return the split sorted by the SHA-256 of label byte and pixel bytes.

    Sources keep CIFAR-10 in different orders; their common order can only come from the content.
    Ties are identical records, so the result does not depend on the order given.
    """
    after_label = [hashlib.sha256(bytes([label])) for label in range(256)]
    digests = []
    pixels = np.ascontiguousarray(split.images).reshape(len(split.labels), -1)
    for label, image in zip(split.labels.tolist(), pixels, strict=True):
        digest = after_label[label].copy()
        digest.update(image.data)
        digests.append(digest.digest())
    order = np.array(sorted(range(len(digests)), key=digests.__getitem__), dtype=np.int64)
    return Split(split.images[order], split.labels[order])


def subset(
    dataset: Dataset, *, seed: int, train_size: int | None, test_size: int | None
) -> Dataset:
    """Return the images that the seed chooses, in canonical order; None keeps all of a split.

    Raises:
        UserError: If a size is larger than its split.
    """
    train = _chosen(dataset, "train", seed, train_size)
    test = _chosen(dataset, "test", seed, test_size)
    return replace(
        dataset,
        train_images=dataset.train_images[train],
        train_labels=dataset.train_labels[train],
        train_samples=dataset.train_samples[train],
        test_images=dataset.test_images[test],
        test_labels=dataset.test_labels[test],
    )


def fingerprint(dataset: Dataset) -> str:
    """Return the SHA-256 of everything that reaches training: equal names, equal inputs.

    The source does not reach training, and so does not count.
    """
    header = (
        f"dataset {dataset.name} {len(dataset.train_labels)} of {dataset.num_canonical} "
        f"{len(dataset.test_labels)}"
    )
    digest = hashlib.sha256(header.encode())
    digest.update(np.array([*dataset.mean, *dataset.std], "<f8").data)
    for array in _arrays(dataset):
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def _arrays(dataset: Dataset) -> tuple[np.ndarray, ...]:
    return (
        dataset.train_images,
        dataset.train_labels,
        dataset.test_images,
        dataset.test_labels,
        dataset.train_samples,
    )


def _chosen(dataset: Dataset, split: str, seed: int, size: int | None) -> np.ndarray | slice:
    """Return the indices that the seed chooses within a split, or the slice of all."""
    train = split == "train"
    num_images = len(dataset.train_labels if train else dataset.test_labels)
    if size is None:
        return slice(None)
    if size > num_images:
        raise UserError(
            f"--{split}-size is {size:,}, but {dataset.name} has {num_images:,} {split} images. "
            f"Choose at most {num_images:,}, or leave --{split}-size out to use all."
        )
    purpose = Purpose.TRAIN_SUBSET if train else Purpose.TEST_SUBSET
    return streams.subset(seed, purpose, num_images, size)
