import dataclasses
import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity import streams
from parity.data.dataset import Dataset, Split, canonical, fingerprint, in_canonical_order, subset
from parity.errors import UserError

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.1)


def make(train: Split, test: Split) -> Dataset:
    return canonical(name="tiny", source="here", train=train, test=test, mean=MEAN, std=STD)


@pytest.fixture
def dataset(splits) -> Dataset:
    return make(*splits)


def test_canonical_order_is_that_of_the_sha256_of_label_and_pixels(splits):
    train, _ = splits
    ordered = in_canonical_order(train)
    records = [
        hashlib.sha256(bytes([label]) + image.tobytes()).hexdigest()
        for image, label in zip(*ordered, strict=True)
    ]
    assert records == sorted(records)
    assert len(set(records)) == len(train.labels)


@given(st.permutations(range(6)))
def test_canonical_order_forgets_the_order_given(order):
    # Records 0 and 1 are identical, 2 differs from them in its label alone.
    images = np.zeros((6, 32, 32, 3), np.uint8)
    images[3:] = np.arange(3 * 3072, dtype=np.uint32).reshape(3, 32, 32, 3) % 251
    labels = np.array([7, 7, 8, 1, 2, 3], np.uint8)
    expected = in_canonical_order(Split(images, labels))
    ordered = in_canonical_order(Split(images[order], labels[order]))
    np.testing.assert_array_equal(ordered.images, expected.images)
    np.testing.assert_array_equal(ordered.labels, expected.labels)


def test_canonical_order_reads_images_that_lie_in_planes(splits):
    train, _ = splits
    planes = np.ascontiguousarray(train.images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(
        in_canonical_order(Split(planes, train.labels)).images, in_canonical_order(train).images
    )


def test_arrays_are_read_only(dataset):
    for array in (
        dataset.train_images,
        dataset.train_labels,
        dataset.test_images,
        dataset.test_labels,
        dataset.train_samples,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_fingerprint_does_not_depend_on_source_or_order(splits, shuffled, dataset):
    train, test = splits
    other = dataclasses.replace(make(shuffled(train, 1), shuffled(test, 2)), source="there")
    assert fingerprint(other) == fingerprint(dataset)


@pytest.mark.parametrize(
    "field", ["train_images", "train_labels", "test_images", "test_labels", "train_samples"]
)
def test_fingerprint_sees_a_single_changed_element(dataset, field):
    array = getattr(dataset, field).copy()
    array.reshape(-1)[-1] ^= 1
    assert fingerprint(dataclasses.replace(dataset, **{field: array})) != fingerprint(dataset)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "other"),
        ("num_canonical", 21),
        ("mean", (0.5, 0.4, np.nextafter(0.3, 1))),
        ("std", (0.25, 0.2, np.nextafter(0.1, 1))),
    ],
)
def test_fingerprint_sees_what_else_reaches_training(dataset, field, value):
    assert fingerprint(dataclasses.replace(dataset, **{field: value})) != fingerprint(dataset)


def test_subset_holds_the_images_that_the_streams_choose(dataset):
    chosen = streams.subset(42, streams.Purpose.TRAIN_SUBSET, 20, 7)
    tested = streams.subset(42, streams.Purpose.TEST_SUBSET, 4, 3)
    part = subset(dataset, seed=42, train_size=7, test_size=3)
    np.testing.assert_array_equal(part.train_samples, chosen)
    np.testing.assert_array_equal(part.train_images, dataset.train_images[chosen])
    np.testing.assert_array_equal(part.train_labels, dataset.train_labels[chosen])
    np.testing.assert_array_equal(part.test_images, dataset.test_images[tested])
    np.testing.assert_array_equal(part.test_labels, dataset.test_labels[tested])
    assert part.num_canonical == 20


def test_subset_of_another_seed_differs(dataset):
    parts = [subset(dataset, seed=seed, train_size=7, test_size=3) for seed in (1, 2)]
    assert fingerprint(parts[0]) != fingerprint(parts[1])


def test_subset_without_sizes_or_with_full_ones_is_the_whole(dataset):
    for size, test_size in ((None, None), (20, 4)):
        part = subset(dataset, seed=1, train_size=size, test_size=test_size)
        assert fingerprint(part) == fingerprint(dataset)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((21, None), r"--train-size is 21, but tiny has 20 train images\. Choose at most 20"),
        ((None, 5), r"--test-size is 5, but tiny has 4 test images\. Choose at most 4"),
    ],
)
def test_subset_larger_than_the_set_is_refused(dataset, sizes, message):
    with pytest.raises(UserError, match=message):
        subset(dataset, seed=1, train_size=sizes[0], test_size=sizes[1])
