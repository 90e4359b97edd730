import numpy as np
import pytest

from parity.data import draws, pipeline
from parity.data.dataset import subset


@pytest.fixture(scope="module")
def images(photographs):
    """20 of them, so that samples are not positions."""
    return subset(photographs, seed=3, train_size=20, test_size=11)


def test_an_epoch_is_its_whole_batches_and_what_is_left(images):
    def shapes(size):
        stretches = draws.train_draws(images, seed=1, epoch=2, batch_size=size)
        return [[a.shape for a in stretch] for stretch in stretches]

    assert shapes(8) == [
        [(2, 8), (2, 8, 2), (2, 8), (2, 8, 256)],
        [(1, 4), (1, 4, 2), (1, 4), (1, 4, 256)],
    ]
    assert [stretch[0] for stretch in shapes(10)] == [(2, 10)]
    assert [stretch[0] for stretch in shapes(99)] == [(1, 20)]
    tests = list(draws.test_draws(images, batch_size=8))
    assert [d.chosen.tolist() for d in tests] == [[[*range(8)]], [[8, 9, 10]]]
    assert all(d[1:] == (None, None, None) for d in tests)


def test_they_are_what_the_pipelines_batches_are_made_of(images):
    table = pipeline.lookup_table(images)
    batches = pipeline.train_batches(images, seed=1, epoch=2, batch_size=8)
    stretches = draws.train_draws(images, seed=1, epoch=2, batch_size=8)
    steps = [draws.Draws(*step) for stretch in stretches for step in zip(*stretch, strict=True)]
    for batch, draw in zip(batches, steps, strict=True):
        pixels = pipeline.crop(images.train_images[draw.chosen], draw.offsets, draw.flips)
        assert np.array_equal(batch.images, pipeline.normalise(pixels, table))
        assert np.array_equal(batch.labels, images.train_labels[draw.chosen])
        keep = np.unpackbits(draw.keep_bits, axis=1, bitorder="little")
        assert np.array_equal(batch.keep, keep)
