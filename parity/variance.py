"""Variance: what framework, platform, their interaction, the seed and noise each add to it.

The frameworks and platforms are those there are (fixed); seeds are a sample (random), and crossed
with both, because one seed is one stream of weights, batches and masks everywhere. Of a run on any
of these frameworks and platforms, each as likely, with any seed, the variance is the sum of five:

    framework    of the frameworks' means over all platforms and seeds
    platform     of the platforms' means
    interaction  of what the mean of a framework on a platform has beside the two
    seed         of what a seed does alike in all combinations
    noise        what is left: what one framework or platform does to one seed alone. Where training
                 is chaotic, any change of rounding does that. Without repeats it cannot be told
                 from noise from run to run; with them it includes that.

Effects of the fixed factors are judged by how they vary from seed to seed and not by pooled noise:
seeds are independent of one another, runs of one seed need not be. In simulated studies of 3 to
10 seeds their 95 % intervals hold the truth in 94 to 99 % of the cases; in 93 % that of the noise,
where most of it is what one framework does on all platforms alike. For predictions, which are no
normal numbers, it is 92 % or more with five seeds.

Sources: Gelman 2005, doi:10.1214/009053604000001048 (finite populations of levels); Box 1954,
doi:10.1214/aoms/1177728786 (degrees of freedom of unequal or dependent errors); Light & Margolin
1971, doi:10.1080/01621459.1971.10482297 (variance of classes).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95

FACTORS = ("framework", "platform")
INTERACTION = "interaction"
SEED = "seed"
NOISE = "noise"
PARTS = (*FACTORS, INTERACTION, SEED, NOISE)

_LOW, _HIGH = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2

_MOST = 1000
"""The largest effective rank of vectors, which may stand for more numbers than they have."""

_POINTS = 400
"""Of the distribution over which a limit is averaged; Student's t for one degree of freedom, its
longest tail, comes out to 1 % with these."""


class Component(NamedTuple):
    """One part of the variance."""

    name: str
    variance: float
    """In the square of the values' unit. An estimate below zero is given as zero."""
    low: float | None
    """95 % confidence interval. None where nothing varies by which to judge it."""
    high: float | None

    @property
    def shown(self) -> bool:
        """Whether it is above zero by more than chance explains."""
        return self.low is not None and self.low > 0

    @property
    def exact(self) -> bool:
        """Whether it is zero because the runs are bitwise identical."""
        return self.high == 0


class Repeats(NamedTuple):
    """What is known from runs that differ in nothing."""

    variance: float
    """Of one run about the mean of its repeats."""
    free: int
    """Degrees of freedom."""
    hidden: float
    """The share of this variance that means over the repeats do not have: 1 - 1 / repeats, a mean
    over all combinations."""

    def component(self) -> Component:
        """Return it as a part of the noise."""
        return _chi_squared("repeats", self.variance, self.free)


def split(values: np.ndarray, *, repeats: Repeats | None = None) -> list[Component]:
    """Return the parts of the variance, those of factors with one level left out.

    Args:
        values: Means over the repeats of each combination, at least two seeds. Shape (frameworks,
            platforms, seeds, numbers of a run): variances of the numbers are added up.
        repeats: What the repeats vary by, if there are any that differ.
    """
    # From the first run, so that equal values are zeros, without any rounding.
    values = values - values[:1, :1, :1]
    num_seeds = values.shape[2]
    found = [
        _fixed(name, _effect(values, axes))
        for name, axes in ((FACTORS[0], (0,)), (FACTORS[1], (1,)), (INTERACTION, (0, 1)))
        if all(values.shape[axis] > 1 for axis in axes)
    ]
    free = num_seeds - 1
    common = values.mean(axis=(0, 1), keepdims=True)
    between, rank = _spread(_centred(common), 1)
    num_cells = values.shape[0] * values.shape[1]
    if num_cells == 1:
        return [*found, _seed(between, rank * free, 0.0, 1.0), _noise(0.0, 1.0, repeats)]
    own = _centred(values - common)
    noise, noise_rank = _spread(own, num_cells - 1)
    noise *= num_cells / (num_cells - 1)
    left = _noise(noise, noise_rank * free, repeats)
    if noise and values.shape[3] > 1:
        factor = _scatter(own)
        left = left._replace(low=left.variance / factor, high=left.variance * factor)
    return [*found, _seed(between, rank * free, noise / num_cells, noise_rank * free), left]


def exceeds(a: Component, b: Component) -> bool:
    """Return whether the first variance is larger than the second by more than chance explains.

    Source: Zou & Donner 2008, doi:10.1002/sim.3095 (the difference of two from their intervals).
    """
    if a.low is None or b.high is None:
        return False
    margin = math.hypot(a.variance - a.low, b.high - b.variance)
    return a.variance - b.variance > margin


def _effect(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return what the levels add within each seed. Shape (levels, levels or 1, seeds, numbers)."""
    others = tuple({0, 1} - set(axes))
    effect = values.mean(axis=others, keepdims=True) if others else values
    for axis in axes:
        effect = effect - effect.mean(axis=axis, keepdims=True)
    return effect


def _centred(values: np.ndarray) -> np.ndarray:
    """Return values less their means over the seeds."""
    return values - values.mean(axis=2, keepdims=True)


def _spread(residuals: np.ndarray, dimensions: int) -> tuple[float, float]:
    """Return the variance over the seeds, a mean over the levels, and its effective rank.

    The rank is how many equal and independent variances would vary alike: (tr C)**2 / tr C**2 of
    the covariance C, both without bias for normal values (as of Huynh & Feldt 1976).

    Args:
        residuals: Values less their means over the seeds. Shape (levels, levels, seeds, numbers).
        dimensions: In which a number of the levels can vary, the largest rank for one number.
    """
    num_seeds, numbers = residuals.shape[2:]
    rows = np.moveaxis(residuals, 2, 0).reshape(num_seeds, -1)
    rows = rows / math.sqrt(residuals.shape[0] * residuals.shape[1])
    gram = rows @ rows.T if num_seeds <= rows.shape[1] else rows.T @ rows
    free, most = num_seeds - 1, dimensions if numbers == 1 else _MOST
    trace = float(np.trace(gram)) / free
    if free == 1 or most == 1 or trace == 0:
        return trace, 1.0
    raw = float((gram**2).sum()) / free**2
    squares = (raw - trace**2 / free) * free**2 / ((free - 1) * (free + 2))
    squared = trace**2 - 2 * squares / free
    rank = squared / squares if squares > 0 else math.inf
    return trace, min(max(rank, 1.0), float(most))


def _fixed(name: str, effect: np.ndarray) -> Component:
    """Return the part of a factor's levels, given what they add within each seed."""
    levels, num_seeds = effect.shape[:2], effect.shape[2]
    dimensions = math.prod(max(number - 1, 1) for number in levels)
    means = effect.mean(axis=2)
    size = float((means**2).sum()) / math.prod(levels)
    spread, rank = _spread(_centred(effect), dimensions)
    error = spread / num_seeds
    # Counts of images can cancel but for their rounding.
    variance = size - error if size - error > 1e-12 * size else 0.0
    # Rounding, or as good as one gap in every seed; and the distribution ends at ratios of 1e10.
    if error <= 1e-9 * size:
        return Component(name, variance, None, None)
    free = rank * (num_seeds - 1)
    low = _limit(_LOW, size, error, rank, free)
    # Effects smaller than their own error are luck, which must not make the interval narrow.
    high = _limit(_HIGH, max(size, error), error, rank, free)
    return Component(name, variance, low, high)


def _limit(level: float, size: float, error: float, rank: float, free: float) -> float:
    """Return the variance of level means at which a smaller `size` has a chance of 1 - `level`.

    The size, in units of the error, has a noncentral chi-squared distribution, here averaged over
    what the error may truly be. For two levels the limits are Student's; a lower one above zero
    says that the F-test finds an effect.
    """
    from scipy.special import chdtri, chndtr  # loads in 0.2 s, which `--help` need not wait for

    points = (np.arange(_POINTS) + 0.5) / _POINTS
    scale = rank * chdtri(free, points) / free / error

    def reached(variance: float) -> bool:
        return float(1 - chndtr(size * scale, rank, variance * scale).mean()) >= level

    return _first(reached, size + error)


def _first(reached: Callable[[float], bool], guess: float) -> float:
    """Return the smallest number above zero that reaches, by bisection; 0 if all do."""
    if reached(0.0):
        return 0.0
    low, high = 0.0, guess
    while not reached(high):
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _seed(between: float, free: float, error: float, error_free: float) -> Component:
    """Return the part of the seed: the variance between seeds less the error in it.

    Source: Williams 1962, doi:10.1093/biomet/49.1-2.278, and Tukey 1951 (limits).
    """
    from scipy.special import chdtri, fdtri

    def limit(level: float, size: float) -> float:
        left = size - error * float(fdtri(free, error_free, level))
        return max(left, 0.0) * free / float(chdtri(free, 1 - level))

    variance = max(between - error, 0.0)
    if between == 0:
        return Component(SEED, variance, None, None)
    return Component(SEED, variance, limit(_HIGH, between), limit(_LOW, max(between, error)))


def _noise(variance: float, free: float, repeats: Repeats | None) -> Component:
    """Return the part of the noise in one run; degrees of freedom of the sum by Satterthwaite."""
    if repeats is not None:
        more = repeats.variance * repeats.hidden
        total = variance + more
        if total:
            free = total**2 / (variance**2 / free + more**2 / repeats.free)
        variance = total
    return _chi_squared(NOISE, variance, free)


def _scatter(residuals: np.ndarray) -> float:
    """Return the factor by which the noise of vectors is uncertain, by Student's t in logarithms.

    From how the seeds' own noise differs, because vectors of classes are no normal numbers: by the
    rank of their covariance, two of ten intervals would miss the truth.
    """
    from scipy.special import stdtrit

    num_seeds = residuals.shape[2]
    own = (residuals**2).sum(axis=(0, 1, 3))
    # Taking off the means over the seeds has made the seeds' noise more alike than it is.
    error = own.std(ddof=1) / own.mean() / math.sqrt(num_seeds) * num_seeds / (num_seeds - 1)
    return math.exp(float(stdtrit(num_seeds - 1, _HIGH)) * error)


def _chi_squared(name: str, variance: float, free: float) -> Component:
    """Return a variance with its interval by the chi-squared distribution."""
    from scipy.special import chdtri

    if variance == 0:
        return Component(name, 0.0, None, None)
    low, high = (variance * free / float(chdtri(free, 1 - level)) for level in (_HIGH, _LOW))
    return Component(name, variance, low, high)
