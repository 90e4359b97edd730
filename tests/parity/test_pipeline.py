import contextlib
import itertools
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity import streams
from parity.architecture import NUM_FEATURES
from parity.data import pipeline
from parity.data.cifar10 import MEAN, STD
from parity.data.dataset import Dataset, Split, canonical, subset
from parity.data.pipeline import prefetch

BATCH_SIZE = 8


def make_dataset(num_train: int = 20, num_test: int = 11) -> Dataset:
    """Return random images, no two alike."""
    random = np.random.default_rng(7)
    train, test = (
        Split(random.integers(0, 256, (n, 32, 32, 3), np.uint8), (np.arange(n) % 10).astype("u1"))
        for n in (num_train, num_test)
    )
    return canonical(name="random", source="test", train=train, test=test, mean=MEAN, std=STD)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return make_dataset()


@pytest.fixture(scope="module")
def table(dataset) -> np.ndarray:
    return pipeline.lookup_table(dataset)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Fail if a prefetch thread outlives a test."""
    yield
    assert threads() == []


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def epoch_of(dataset, *, seed=42, epoch=1, batch_size=BATCH_SIZE):
    return list(pipeline.train_batches(dataset, seed=seed, epoch=epoch, batch_size=batch_size))


def content(batches) -> bytes:
    return b"".join(a.tobytes() for batch in batches for a in batch if a is not None)


def test_a_pixel_is_scaled_and_normalised_in_float32(dataset, table):
    assert (table.shape, table.dtype) == ((3, 256), np.float32)
    for channel, value in itertools.product(range(3), (0, 1, 127, 255)):
        scaled = np.float32(value) / np.float32(255)
        expected = (scaled - np.float32(MEAN[channel])) / np.float32(STD[channel])
        assert table[channel, value] == expected


def test_normalising_looks_up_every_value_in_its_own_channel(table):
    pixels = np.arange(32 * 32 * 3).astype(np.uint8).reshape(1, 32, 32, 3)
    images = pipeline.normalise(pixels, table)
    assert images.dtype == np.float32
    for channel in range(3):
        assert np.array_equal(images[..., channel], table[channel][pixels[..., channel]])


def naive_crop(image: np.ndarray, offset: np.ndarray, flip: bool) -> np.ndarray:
    padded = np.zeros((40, 40, 3), np.uint8)
    padded[4:36, 4:36] = image
    row, column = map(int, offset)
    window = padded[row : row + 32, column : column + 32]
    return window[:, ::-1] if flip else window


def test_a_crop_is_cut_from_the_image_in_a_frame_of_zeros_then_mirrored(dataset):
    # Every offset with and without a flip: 81 x 2 crops.
    offsets = np.array(list(itertools.product(range(9), range(9))) * 2, np.uint8)
    flips = np.repeat([False, True], 81)
    images = dataset.train_images[np.arange(162) % len(dataset.train_images)]
    crops = pipeline.crop(images, offsets, flips)
    assert crops.dtype == np.uint8
    expected = [naive_crop(*case) for case in zip(images, offsets, flips, strict=True)]
    assert np.array_equal(crops, expected)


def test_the_middle_crop_is_the_image_and_a_flip_mirrors_its_columns(dataset):
    images = dataset.train_images[:2]
    middle = np.full((2, 2), streams.PADDING, np.uint8)
    crops = pipeline.crop(images, middle, np.array([False, True]))
    assert np.array_equal(crops[0], images[0])
    assert np.array_equal(crops[1], images[1][:, ::-1])


def test_padding_is_a_black_pixel_and_not_the_mean(table):
    white = np.full((1, 32, 32, 3), 255, np.uint8)
    corner = pipeline.crop(white, np.zeros((1, 2), np.uint8), np.array([False]))
    images = pipeline.normalise(corner, table)
    assert np.array_equal(images[0, 0, 0], table[:, 0])
    assert not np.array_equal(table[:, 0], np.zeros(3))  # what padding after it would give
    assert np.array_equal(images[0, 4, 4], table[:, 255])


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(8, [8, 8, 4]), (10, [10, 10]), (20, [20]), (64, [20]), (1, [1] * 20)]
)
def test_the_last_batch_holds_what_is_left(dataset, batch_size, sizes):
    batches = epoch_of(dataset, batch_size=batch_size)
    assert [len(batch.labels) for batch in batches] == sizes
    for batch in batches:
        n = len(batch.labels)
        assert (batch.images.shape, batch.images.dtype) == ((n, 32, 32, 3), np.float32)
        assert batch.labels.dtype == np.int32
        assert batch.keep is not None
        assert (batch.keep.shape, batch.keep.dtype) == ((n, NUM_FEATURES), np.bool_)


def visited(dataset, **kwargs) -> list[int]:
    """Return the canonical number of each image in the order of an epoch, read off its pixels."""
    table = pipeline.lookup_table(dataset)
    offsets, flips = streams.augmentation(kwargs.get("seed", 42), kwargs["epoch"], 20)
    known = {}
    for number, image in enumerate(dataset.train_images):
        pixels = naive_crop(image, offsets[number], bool(flips[number]))
        known[pipeline.normalise(pixels[None], table).tobytes()] = number
    return [known[image.tobytes()] for b in epoch_of(dataset, **kwargs) for image in b.images]


def test_each_epoch_visits_each_image_once_in_an_order_of_its_own(dataset):
    orders = [visited(dataset, epoch=epoch) for epoch in (1, 2, 3)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len(set(map(tuple, orders))) == 3


def test_a_label_stays_with_its_image(dataset):
    labels = [int(label) for batch in epoch_of(dataset, epoch=2) for label in batch.labels]
    assert labels == [int(dataset.train_labels[number]) for number in visited(dataset, epoch=2)]


def test_an_image_is_cropped_alike_in_a_subset_and_in_the_whole(dataset):
    def crops(images: Dataset) -> dict[bytes, bytes]:
        order = streams.batch_order(42, 1, len(images.train_labels))
        made = np.concatenate([batch.images for batch in epoch_of(images)])
        return {
            images.train_images[number].tobytes(): image.tobytes()
            for number, image in zip(order, made, strict=True)
        }

    part = crops(subset(dataset, seed=42, train_size=7, test_size=3))
    assert len(part) == 7
    assert part.items() <= crops(dataset).items()


def test_testing_keeps_canonical_order_without_crop_or_dropout(dataset, table):
    batches = list(pipeline.test_batches(dataset, batch_size=BATCH_SIZE))
    assert [len(batch.labels) for batch in batches] == [8, 3]
    assert all(batch.keep is None for batch in batches)
    images = np.concatenate([batch.images for batch in batches])
    assert np.array_equal(images, pipeline.normalise(dataset.test_images, table))
    labels = np.concatenate([batch.labels for batch in batches])
    assert labels.dtype == np.int32
    assert np.array_equal(labels, dataset.test_labels)


positions = st.tuples(st.integers(0, 2**63 - 1), st.integers(1, 10**6))


@given(positions, positions)
def test_the_batches_are_a_pure_function_of_seed_and_epoch(one, other):
    images = make_dataset(5, 1)
    a, again, b = (
        content(epoch_of(images, seed=seed, epoch=epoch, batch_size=2))
        for seed, epoch in (one, one, other)
    )
    assert a == again
    assert (a == b) == (one == other)


@pytest.mark.parametrize("field", ["mean", "std"])
def test_other_statistics_make_other_pixels(dataset, field):
    other = replace(dataset, **{field: (0.5, 0.25, 0.125)})
    assert content(epoch_of(other)) != content(epoch_of(dataset))


@pytest.mark.parametrize("depth", [1, 2, 3, 50])
def test_the_batches_do_not_depend_on_the_depth(dataset, depth):
    def stream():
        return pipeline.train_batches(dataset, seed=1, epoch=1, batch_size=3)

    assert content(prefetch(stream(), depth=depth)) == content(stream())


def test_nothing_in_gives_nothing_out():
    assert list(prefetch(iter(()))) == []


def test_what_the_thread_raises_is_raised_after_what_it_made():
    def items():
        yield 1
        yield 2
        raise ValueError("planted")

    got = []
    with pytest.raises(ValueError, match="planted"):
        list(map(got.append, prefetch(items())))
    assert got == [1, 2]


def test_an_interrupt_in_the_thread_is_not_lost():
    def items():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        next(prefetch(items()))


def test_closing_ends_the_thread_though_items_never_end():
    batches = prefetch(itertools.count())
    assert next(batches) == 0
    assert threads() == ["prefetch"]
    batches.close()  # no_thread_is_left looks for it


def test_a_failing_consumer_ends_the_thread():
    def consume():
        with contextlib.closing(prefetch(itertools.count())) as batches:
            for _ in batches:
                raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        consume()


def test_no_thread_starts_before_the_first_item_is_asked_for():
    batches = prefetch(itertools.count())
    assert threads() == []
    batches.close()


@pytest.mark.parametrize("depth", [1, 3])
def test_it_runs_ahead_by_its_depth_and_no_more(depth):
    made = []

    def items():
        for number in itertools.count():
            made.append(number)
            yield number

    batches = prefetch(items(), depth=depth)
    for taken in range(1, 6):
        assert next(batches) == taken - 1
        # `depth` wait in the queue and one more is in the thread's hand.
        most = taken + depth + 1
        end = time.monotonic() + 30
        while len(made) < most and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.02)  # for a thread that would not stop here
        assert len(made) == most
    batches.close()


@pytest.mark.parametrize("workers", [1, 2, 4, 9])
def test_the_batches_do_not_depend_on_the_workers(dataset, workers):
    alone, helped = (
        list(pipeline.train_batches(dataset, seed=3, epoch=2, batch_size=3, workers=n))
        for n in (0, workers)
    )
    assert len(alone) == len(helped) == 7
    for one, other in zip(alone, helped, strict=True):
        assert [a.tobytes() for a in one] == [a.tobytes() for a in other]


def test_workers_work_side_by_side_and_deliver_in_order():
    together = threading.Barrier(3, timeout=10)

    def make(step: int) -> int:
        together.wait()  # never passed by fewer than three at once
        time.sleep(0.01 * (step % 3))
        return step

    assert list(pipeline.in_order(make, range(9), workers=3)) == list(range(9))


def test_what_a_worker_raises_is_raised_in_its_place():
    def make(step: int) -> int:
        if step == 2:
            raise ValueError("step 2")
        return step

    made = pipeline.in_order(make, range(9), workers=2)
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ValueError, match="step 2"):
        next(made)
    assert not [t for t in threading.enumerate() if t.name.startswith("batches")]


def test_workers_do_not_run_ahead_without_end():
    asked = []
    made = pipeline.in_order(asked.append, itertools.count(), workers=2)
    next(made)
    assert len(asked) <= 4
    made.close()
