"""scikit-learn's 1,797 handwritten digits in the shape of CIFAR-10: real images, no download."""

import numpy as np

from parity.data.dataset import Dataset, Split, canonical, in_canonical_order

NUM_TRAIN = 1_437

# Mean and population standard deviation of the training split's pixels / 255 in float64, rounded to
# four digits as CIFAR-10's are. Made with `load` and NumPy 2.4.6, scikit-learn 1.9.1, 2026-11-30.
MEAN = (0.3053, 0.3053, 0.3053)
STD = (0.3758, 0.3758, 0.3758)

_SCALE = 4  # 8 x 8 pixels become 32 x 32


def load() -> Dataset:
    """Return the digits: 1,437 for training, 360 for testing, each pixel enlarged to 4 x 4.

    The split cuts the canonical order. That order is by hash, so it knows nothing of class or
    writer: the cut is as fair as a random one, and the same for everyone.

    Source: E. Alpaydin, C. Kaynak 1998, doi:10.24432/C50P49, the test part, by
    `sklearn.datasets.load_digits`, which reads it from scikit-learn's own wheel.
    """
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    ink = np.rint(pixels.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)  # from 0..16
    enlarged = ink.repeat(_SCALE, axis=1).repeat(_SCALE, axis=2)
    images = np.repeat(enlarged[..., None], 3, axis=-1)
    digits = in_canonical_order(Split(images, classes.astype(np.uint8)))
    return canonical(
        name="digits",
        source="scikit-learn",
        train=Split(digits.images[:NUM_TRAIN], digits.labels[:NUM_TRAIN]),
        test=Split(digits.images[NUM_TRAIN:], digits.labels[NUM_TRAIN:]),
        mean=MEAN,
        std=STD,
    )
