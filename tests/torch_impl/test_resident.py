import numpy as np
import pytest
import torch

from parity.data import draws, pipeline
from parity.data.dataset import subset
from torch_impl import resident


@pytest.fixture(scope="module")
def images(photographs):
    """20 of them, so that samples are not positions."""
    return subset(photographs, seed=3, train_size=20, test_size=11)


def on_device(split: str, images):
    arrays = getattr(images, f"{split}_images"), getattr(images, f"{split}_labels")
    return resident.place(*arrays, pipeline.lookup_table(images), torch.device("cpu"))


def batches(split, stretches):
    """Yield what the device makes of each step, in NumPy; labels are int64 to PyTorch alone."""
    for stretch in stretches:
        for draw in resident.steps(stretch, torch.device("cpu")):
            pixels, labels, keep = resident.batch(split, draw)
            yield [None if a is None else a.numpy() for a in (pixels, labels.int(), keep)]


def bits(arrays):
    return [None if a is None else (a.shape, str(a.dtype), a.tobytes()) for a in arrays]


def test_training_batches_are_the_hosts_to_the_bit(images):
    settings = {"seed": 1, "epoch": 2, "batch_size": 8}
    made = list(batches(on_device("train", images), draws.train_draws(images, **settings)))
    host = list(pipeline.train_batches(images, **settings))
    assert [bits(batch) for batch in made] == [bits(batch) for batch in host]
    assert len(made) == 3


def test_test_batches_are_the_hosts_to_the_bit(images):
    made = list(batches(on_device("test", images), draws.test_draws(images, batch_size=8)))
    host = list(pipeline.test_batches(images, batch_size=8))
    assert [bits(batch) for batch in made] == [bits(batch) for batch in host]


def test_every_offset_and_flip_cuts_as_the_host_does(images):
    places = [(row, column, flip) for row in range(9) for column in range(9) for flip in (0, 1)]
    rows, columns, flips = np.array(places, np.uint8).T
    offsets, flips = np.stack([rows, columns], 1), flips.astype(bool)
    pixels = np.resize(images.train_images, (len(places), 32, 32, 3))
    cut = resident.crop(*map(torch.from_numpy, (pixels, offsets, flips)))
    assert np.array_equal(cut.numpy(), pipeline.crop(pixels, offsets, flips))
