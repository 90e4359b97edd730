import numpy as np
import pytest

from parity.data import digits
from parity.data.dataset import Dataset, fingerprint


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return digits.load()


def test_all_1797_digits_are_split_into_1437_and_360(dataset):
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (1437, 360)


def test_mean_and_std_are_those_of_the_training_split(dataset):
    pixels = dataset.train_images / 255
    np.testing.assert_array_equal(pixels.mean((0, 1, 2)).round(4), digits.MEAN)
    np.testing.assert_array_equal(pixels.std((0, 1, 2)).round(4), digits.STD)


def test_pixels_are_the_digits_of_scikit_learn_enlarged(dataset):
    from sklearn.datasets import load_digits

    values, classes = load_digits(return_X_y=True)
    images = np.concatenate([dataset.train_images, dataset.test_images])
    labels = np.concatenate([dataset.train_labels, dataset.test_labels])
    np.testing.assert_array_equal(images, np.broadcast_to(images[..., :1], images.shape))
    corners = images[:, ::4, ::4, 0]
    np.testing.assert_array_equal(images[..., 0], corners.repeat(4, 1).repeat(4, 2))
    # Values 0 to 16 survive the stretch to 0 to 255, half a step (0.5 / 15.9) off at most.
    small = np.rint(corners.reshape(-1, 64) * (16 / 255))
    ours = np.column_stack([small, labels]).tolist()
    theirs = np.column_stack([values, classes]).tolist()
    assert sorted(ours) == sorted(theirs)


def test_the_test_split_is_as_even_as_a_random_cut(dataset):
    # A class has 174 to 183 digits: 36 on average in the cut, +- 16, three standard deviations.
    counts = np.bincount(dataset.test_labels, minlength=10)
    assert counts.min() >= 20
    assert counts.max() <= 52


def test_fingerprint_is_golden(dataset):
    # Golden: made with `digits.load` and scikit-learn 1.9.1, NumPy 2.4.6, 2026-11-30.
    assert (
        fingerprint(dataset) == "38be1eaeb72f9502d5a987285ae646aefcc36084fd750694aeb13dde6e34d808"
    )
