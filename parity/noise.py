"""Noise: is the effect of devices larger than what differs from run to run?

Runs are compared within blocks, that is with runs that have every other setting and the seed in
common. What is left between the runs of a block, once every device has its own mean, is the noise:
repeats that differ, and what a device does otherwise under one setting or seed than under another.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, permutations, product
from typing import NamedTuple

import numpy as np

from parity.curves import difference

LEVEL = 0.05
"""Chance that is still taken for a finding, as everywhere in this field."""

POWER = 0.8
"""Chance to find what is there, at which a study is commonly said to be large enough."""

MARGIN = 0.5
"""Percentage points: the article's limit between a good and an acceptable agreement."""

MAX_RUNS_NEEDED = 10_000

_EXACT = 10_000
"""With at most so many arrangements all are tried; else so many are drawn, less one."""


class Pair(NamedTuple):
    """Two devices."""

    first: str
    second: str
    difference: float
    """First minus second, pp, from runs that have all else in common."""
    low: float | None
    high: float | None
    """95 % confidence interval that allows for every pair having been looked at (Bonferroni).
    None where nothing was repeated."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The effect of devices against the noise."""

    levels: tuple[str, ...]
    """The devices that can be compared with another within a block."""
    num_runs: int
    """In blocks of at least two runs."""
    num_blocks: int
    num_free: int
    """Degrees of freedom of the noise: comparisons left once every device has its mean."""
    noise_std: float | None
    """Standard deviation of one run, pp; None where nothing was repeated."""
    largest: Pair
    """The pair of devices that is farthest apart."""
    p_value: float
    """Share of the arrangements of accuracies within the blocks that set the devices apart as
    much as these or more, none being due to a device."""
    lowest_p_value: float
    """What the best arrangement would have: above 0.05 these runs can show nothing."""
    exact: bool
    """Whether all arrangements were tried, and not a sample."""
    detectable: float | None
    """Difference between two devices that these runs would have shown with a chance of 80 %, pp;
    None where nothing was repeated."""
    runs_needed: int | None
    """Runs on each device that would show a difference of `MARGIN` with a chance of 80 %; None
    where the noise is unknown, or more than `MAX_RUNS_NEEDED` would be."""

    @property
    def shown(self) -> bool:
        """Whether the devices differ by more than noise explains."""
        return self.p_value < LEVEL


def contest(
    accuracies: Sequence[float], levels: Sequence[str], blocks: Sequence[Hashable]
) -> Contest | None:
    """Return the effect of devices (or of any other treatment) against the noise.

    The model is additive: accuracy = block + device + noise. The statistic of the permutation test
    is the sum of squares that the devices explain within the blocks.

    Args:
        accuracies: Final test accuracy of each run, percent. Shape (runs,).
        levels: Device of each run.
        blocks: What each run has in common with those it can be compared with.

    Returns:
        None where no block has runs on two devices.

    Source: Lehmann & Romano, Testing Statistical Hypotheses, 3rd ed., 15.2 (permutation within
    strata); power by the noncentral t distribution.
    """
    ids = _numbered(blocks)
    sizes = np.bincount(ids)
    kept = [i for i in range(len(ids)) if sizes[ids[i]] > 1]
    ids = _numbered([blocks[i] for i in kept])
    names = sorted({levels[i] for i in kept})
    y = np.array([accuracies[i] for i in kept], np.float64)
    own = np.array([names.index(levels[i]) for i in kept], np.intp)
    design = _within(np.eye(len(names))[own], ids) if len(kept) else np.zeros((0, 0))
    basis = _basis(design)
    if not basis.shape[1]:
        return None
    deviations = _within(y[:, None], ids)[:, 0]
    explained = float(((basis.T @ deviations) ** 2).sum())
    num_free = len(y) - int(ids.max()) - 1 - basis.shape[1]
    left = max(float((deviations**2).sum()) - explained, 0.0)
    # Rounding leaves a trace of the squares where there is no noise at all.
    left = 0.0 if left <= 1e-12 * max(explained, 1e-12) else left
    noise = math.sqrt(left / num_free) if num_free else None
    pairs = _pairs(design, deviations, names)
    factor = float(np.median([spread for *_, spread in pairs]))
    first, second, apart, spread = max(pairs, key=lambda pair: abs(pair[2]))
    half = None if noise is None else _critical(num_free, len(pairs)) * noise * spread
    if apart < 0:
        first, second, apart = second, first, -apart
    p_value, lowest, exact = _permutation(y, ids, basis)
    return Contest(
        levels=tuple(sorted({name for a, b, *_ in pairs for name in (a, b)})),
        num_runs=len(y),
        num_blocks=int(ids.max()) + 1,
        num_free=num_free,
        noise_std=noise,
        largest=Pair(
            first,
            second,
            difference(apart, 0.0),
            None if half is None else apart - half,
            None if half is None else apart + half,
        ),
        p_value=p_value,
        lowest_p_value=lowest,
        exact=exact,
        detectable=(
            None if noise is None else noise * factor * _noncentrality(num_free, len(pairs))
        ),
        runs_needed=None if noise is None else runs_needed(noise, len(names)),
    )


def runs_needed(noise_std: float, num_levels: int, *, margin: float = MARGIN) -> int | None:
    """Return how many runs on each of some devices show a difference with a chance of 80 %.

    Every block holds one run on each device; all pairs of devices are looked at; and there are
    blocks enough for the permutation test to find anything at all: for two devices, six.

    Args:
        noise_std: Standard deviation of one run, pp.
        num_levels: Devices, at least two.
        margin: Difference to be shown, pp.

    Returns:
        None where that would be more than `MAX_RUNS_NEEDED`.
    """
    pairs = math.comb(num_levels, 2)

    def enough(runs: int) -> bool:
        # With every block in one order, so many arrangements are as clear: those of the names.
        if math.factorial(num_levels) ** (1 - runs) >= LEVEL:
            return False
        free = (num_levels - 1) * (runs - 1)
        return noise_std * math.sqrt(2 / runs) * _noncentrality(free, pairs) <= margin

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if high > MAX_RUNS_NEEDED:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _numbered(items: Sequence[Hashable]) -> np.ndarray:
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(item, len(numbers)) for item in items], np.intp)


def _within(values: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return how far columns are from their means in the blocks. Shape (runs, columns)."""
    sums = np.zeros((ids.max() + 1, values.shape[1]))
    np.add.at(sums, ids, values)
    return values - (sums / np.bincount(ids)[:, None])[ids]


def _basis(design: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of what devices can explain. Shape (runs, rank)."""
    if not design.size:
        return design
    left, singular, _ = np.linalg.svd(design, full_matrices=False)
    return left[:, singular > 1e-9 * max(1.0, singular[0])]


def _pairs(
    design: np.ndarray, deviations: np.ndarray, names: Sequence[str]
) -> list[tuple[str, str, float, float]]:
    """Return all pairs of devices that blocks connect, and how far the first is above the second.

    Last comes the factor by which the noise of a run enters the standard error of that.
    """
    gram = design.T @ design
    inverse = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    means = inverse @ (design.T @ deviations)
    found = []
    for a, b in combinations(range(len(names)), 2):
        contrast = np.zeros(len(names))
        contrast[a], contrast[b] = 1.0, -1.0
        # Without a chain of blocks between two devices, their difference is anybody's guess.
        if np.abs(gram @ inverse @ contrast - contrast).max() < 1e-6:
            spread = math.sqrt(float(contrast @ inverse @ contrast))
            found.append((names[a], names[b], float(means[a] - means[b]), spread))
    return found


def _critical(num_free: int, num_pairs: int) -> float:
    """Return the two-sided limit of Student's t at `LEVEL`, for so many pairs (Bonferroni)."""
    from scipy.special import stdtrit  # loads in 0.2 s, which `--help` need not wait for

    return float(stdtrit(num_free, 1 - LEVEL / 2 / num_pairs))


def _noncentrality(num_free: int, num_pairs: int) -> float:
    """Return the difference, in standard errors, that passes the limit with a chance of 80 %."""
    from scipy.special import nctdtrinc

    return float(nctdtrinc(num_free, 1 - POWER, _critical(num_free, num_pairs)))


def _permutation(y: np.ndarray, ids: np.ndarray, basis: np.ndarray) -> tuple[float, float, bool]:
    """Return the p-value, the lowest that there could be, and whether it is exact.

    Accuracies change places within their blocks.
    """
    blocks = [np.flatnonzero(ids == number) for number in range(ids.max() + 1)]
    count = math.prod(math.factorial(min(len(block), 20)) for block in blocks)
    centred = y - y.mean()
    if count <= _EXACT:
        orders = product(*(permutations(block) for block in blocks))
        order = np.fromiter(chain.from_iterable(chain.from_iterable(orders)), np.intp)
        arranged = np.zeros((count, len(y)))
        arranged[:, np.concatenate(blocks)] = centred[order.reshape(count, len(y))]
        drawn = 0
    else:
        # Fewer for very many runs, whose p-values need fewer to be told from 0.05.
        drawn = _EXACT - 1 if len(y) <= 300 else 999
        random = np.random.Generator(np.random.Philox(0))
        arranged = np.tile(centred, (drawn, 1))
        for block in blocks:
            arranged[:, block] = random.permuted(arranged[:, block], axis=1)
    statistics = ((arranged @ basis) ** 2).sum(axis=1)
    observed = float(((centred @ basis) ** 2).sum())
    # Arrangements that explain as much must count as such, whatever rounding does.
    slack = 1e-9 * max(observed, 1e-9)
    at_least = int((statistics >= observed - slack).sum())
    if not drawn:
        return at_least / count, float((statistics >= statistics.max() - slack).mean()), True
    return (at_least + 1) / (drawn + 1), 1 / (drawn + 1), False
