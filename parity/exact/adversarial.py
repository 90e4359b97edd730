"""Tensors on which an arithmetic that is not exact shows: for the tests of every engine."""

from typing import Literal, get_args

import numpy as np

Kind = Literal[
    "plain", "cancelling", "ties", "saturating", "few values", "tiny", "mixed", "single", "zeros"
]
KINDS: tuple[Kind, ...] = get_args(Kind)


def tensor(kind: Kind, shape: tuple[int, ...], seed: int, largest_exponent: int = 60) -> np.ndarray:
    """Return float32 numbers without subnormal ones, below 2**largest_exponent in size.

    plain: normal deviates; cancelling: the second half takes back the first, but for the last bits;
    ties: halfway between two integers when quantised to 11, 12, ... 20 bits; saturating: quantised
    to +-2**bits; few values: -1, -0, +0 and 1, so that windows tie; tiny: products are subnormal;
    mixed: every exponent there is; single: one number among zeros; zeros: +0 and -0.
    """
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    signs = rng.choice([-1.0, 1.0], size)
    match kind:
        case "plain":
            values = rng.standard_normal(size)
        case "cancelling":
            half = rng.standard_normal(size // 2)
            back = -half * (1 + rng.integers(-1, 2, len(half)) * 2.0**-23)
            values = rng.permutation(np.append(half, np.append(back, np.zeros(size % 2))))
        case "ties":
            bits = rng.integers(11, 21, size)
            # The exponent of 1 is 1: numbers count in units of 2**(1 - bits).
            values = (rng.integers(0, 2 ** (bits - 2)) + 0.5) * 2.0 ** (1 - bits) * signs
            values[rng.integers(size)] = 1.0
        case "saturating":
            values = (1 - 2.0**-24) * signs
        case "few values":
            values = rng.integers(0, 2, size) * signs
        case "tiny":
            values = rng.uniform(1, 2, size) * signs * 2.0 ** rng.integers(-126, -60, size)
        case "mixed":
            exponents = rng.integers(-126, largest_exponent, size)
            values = rng.uniform(1, 2, size) * signs * 2.0**exponents
        case "single":
            values = np.zeros(size)
            values[rng.integers(size)] = rng.standard_normal()
        case "zeros":
            values = np.zeros(size) * signs
    return values.astype(np.float32).reshape(shape)
