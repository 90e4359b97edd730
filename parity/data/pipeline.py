"""From canonical arrays to batches: crops, flips, one look-up table, and a thread that runs ahead.

Both frameworks receive the same float32 bits: a pixel's value comes from a table of 256 entries a
channel, made in NumPy with torchvision's operations.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from parity import streams
from parity.architecture import NUM_FEATURES, initial_weights
from parity.data.dataset import Dataset

T = TypeVar("T")


class Batch(NamedTuple):
    """What one step or one evaluation reads."""

    images: np.ndarray
    """Normalised pixels. Shape (n, 32, 32, 3), float32."""
    labels: np.ndarray
    """Classes. Shape (n,), int32."""
    keep: np.ndarray | None
    """Features that dropout keeps, channel-major. Shape (n, NUM_FEATURES), bool. None: all."""


class Pipeline(Protocol):
    """Where a run's randomness comes from: what `OwnPipeline` is, and others may be."""

    def initial_weights(self) -> dict[str, np.ndarray]:
        """Return parameters and buffers by canonical name, float32 (and int64)."""
        ...

    def fingerprint(self, dataset: Dataset, *, batch_size: int, workers: int) -> str:
        """Return the SHA-256 that names the streams: equal names, equal streams."""
        ...

    def train_batches(
        self, dataset: Dataset, *, epoch: int, batch_size: int, workers: int
    ) -> Iterator[Batch]:
        """Yield an epoch's training batches; the last one holds what is left."""
        ...


class OwnPipeline:
    """Batches and weights from parity.streams."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def initial_weights(self) -> dict[str, np.ndarray]:
        """Return the seed's weights."""
        return initial_weights(self._seed)

    def fingerprint(self, dataset: Dataset, *, batch_size: int, workers: int) -> str:
        """Return the streams' SHA-256, which no number of workers changes."""
        return streams.fingerprint(
            self._seed, dataset.train_samples, dataset.num_canonical, batch_size
        )

    def train_batches(
        self, dataset: Dataset, *, epoch: int, batch_size: int, workers: int
    ) -> Iterator[Batch]:
        """Yield an epoch's training batches."""
        return train_batches(
            dataset, seed=self._seed, epoch=epoch, batch_size=batch_size, workers=workers
        )


def lookup_table(dataset: Dataset) -> np.ndarray:
    """Return the normalised value of each pixel value and channel. Shape (3, 256), float32.

    The operations are torchvision's ToTensor and Normalize: float32 value / 255, - mean, / std.
    """
    values = np.arange(256, dtype=np.float32) / np.float32(255)
    mean = np.array(dataset.mean, np.float32)[:, None]
    std = np.array(dataset.std, np.float32)[:, None]
    return (values - mean) / std


def normalise(pixels: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return uint8 pixels (n, 32, 32, 3) as float32 by the look-up table (3, 256)."""
    images = np.empty(pixels.shape, np.float32)
    for channel, row in enumerate(table):
        images[..., channel] = row[pixels[..., channel]]
    return images


def crop(pixels: np.ndarray, offsets: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Return each image's random crop: padded with zeros, cut at its offset, mirrored if flipped.

    Args:
        pixels: Images. Shape (n, 32, 32, 3), uint8.
        offsets: Row and column of the window in the padded image. Shape (n, 2).
        flips: Which crops to mirror. Shape (n,), bool.
    """
    pad = streams.PADDING
    height, width = pixels.shape[1:3]
    padded = np.pad(pixels, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = sliding_window_view(padded, (height, width), (1, 2))
    # The window axes come last: (n, rows, columns, 3, 32, 32).
    cropped = windows[np.arange(len(pixels)), offsets[:, 0], offsets[:, 1]].transpose(0, 2, 3, 1)
    return np.where(flips[:, None, None, None], cropped[:, :, ::-1], cropped)


def train_batches(
    dataset: Dataset, *, seed: int, epoch: int, batch_size: int, workers: int = 0
) -> Iterator[Batch]:
    """Yield an epoch's training batches; the last one holds what is left.

    Args:
        dataset: Canonical arrays.
        seed: The run's seed.
        epoch: Number of the epoch, from 1.
        batch_size: Images a step.
        workers: Threads that make batches side by side; 0: the caller's own. No bit depends on it,
            because each batch is a function of its step alone.
    """
    table = lookup_table(dataset)
    order = streams.batch_order(seed, epoch, len(dataset.train_labels))
    offsets, flips = streams.augmentation(seed, epoch, dataset.num_canonical)

    def batch(step: int) -> Batch:
        chosen = order[(step - 1) * batch_size : step * batch_size]
        samples = dataset.train_samples[chosen]
        pixels = crop(dataset.train_images[chosen], offsets[samples], flips[samples])
        return Batch(
            images=normalise(pixels, table),
            labels=dataset.train_labels[chosen].astype(np.int32),
            keep=streams.dropout_mask(seed, epoch, step, len(chosen), NUM_FEATURES),
        )

    return in_order(batch, range(1, 1 + -(-len(order) // batch_size)), workers=workers)


def in_order(make: Callable[[int], T], steps: Iterable[int], *, workers: int) -> Iterator[T]:
    """Yield `make` of every step in the order of the steps, made by threads side by side.

    At most twice as many as there are threads wait. What `make` raises is raised in its place.
    """
    if not workers:
        yield from map(make, steps)
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="batches") as pool:
        try:
            for step in steps:
                waiting.append(pool.submit(make, step))
                if len(waiting) == 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def test_batches(dataset: Dataset, *, batch_size: int) -> Iterator[Batch]:
    """Yield the test images in canonical order, in batches; the last one holds what is left."""
    table = lookup_table(dataset)
    for start in range(0, len(dataset.test_labels), batch_size):
        chosen = slice(start, start + batch_size)
        images = normalise(dataset.test_images[chosen], table)
        yield Batch(images, dataset.test_labels[chosen].astype(np.int32), keep=None)


def prefetch(items: Iterator[T], *, depth: int = 2) -> Generator[T, None, None]:
    """Yield `items`, made ahead by a thread: at most `depth` wait at a time.

    What the thread raises is raised here. Closing this iterator ends the thread.
    """
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: T | None, error: BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return ready.put((item, error), timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item, None)
                if stopped.is_set():
                    return
            put(None, StopIteration())
        except BaseException as error:
            put(None, error)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            assert item is not None
            yield item
    finally:
        stopped.set()
        thread.join()
