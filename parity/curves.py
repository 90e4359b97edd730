"""Statistics of learning curves: spread of final accuracies, correlation, convergence, stability.

Sums over runs are exact before they are rounded once, and so do not depend on the order of the
runs; everything else is elementwise, so that no BLAS can change a digit.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MIN_EPOCHS = 3
"""Of two points any two curves make r = 1 or r = -1, which says nothing about their shapes."""

_PIECE = 31
_BITS = 3 * _PIECE
"""Binary digits of r that count in a sum: all of them where |r| is above 2**-41."""

_BLOCK = 64
"""Rows of the correlation matrix held at a time: of 10,000 runs, 5 MB, which a cache holds."""


class Correlations(NamedTuple):
    """Pearson's r between the test-accuracy curves of all pairs of runs."""

    mean: float | None
    """None where no pair has a defined r."""
    lowest: float | None
    lowest_pair: tuple[int, int] | None
    """Positions of the two runs."""
    num_undefined: int
    """Pairs left out, because a curve is constant or has fewer than three epochs."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How far runs lie apart, over the epochs that all of them have."""

    num_runs: int
    num_epochs: int
    """Epochs that all runs have; the figures are over these."""
    longest: int
    """Epochs of the longest run."""
    mean_accuracy: float
    """Mean test accuracy at the last common epoch, percent."""
    std_accuracy: float
    """Population standard deviation (ddof 0) of it, pp."""
    min_accuracy: float
    max_accuracy: float
    max_difference: float
    """Largest minus smallest of it, pp; the article's Max_Diff."""
    correlations: Correlations
    first_loss_gap: float
    """Largest minus smallest training loss of epoch 1, nats."""
    threshold_epoch: int | None
    """First epoch at which the mean curve reaches the threshold; None where it never does."""
    stability: float
    """Population standard deviation of the mean test-accuracy curve over the epochs, pp."""


def difference(larger: float, smaller: float) -> float:
    """Return larger - smaller without the noise of binary fractions, for figures in percent.

    Rounded to 10 decimals: an accuracy is a decimal fraction, and 0.01 pp must not come out as
    0.00999999999999801, which is on the other side of a limit.

    >>> 78.46 - 77.59, difference(78.46, 77.59)
    (0.8699999999999903, 0.87)
    """
    return round(larger - smaller, 10)


def mean(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean, whatever the order of the values."""
    return math.fsum(values) / len(values)


def population_std(values: Sequence[float] | np.ndarray) -> float:
    """Return the standard deviation with ddof 0, whatever the order of the values."""
    centre = mean(values)
    return math.sqrt(math.fsum((x - centre) ** 2 for x in map(float, values)) / len(values))


def mean_curve(curves: np.ndarray) -> np.ndarray:
    """Return the mean over runs. Shape (runs, epochs) to (epochs,)."""
    return np.array([mean(values) for values in curves.T])


def epoch_reaching(curve: np.ndarray, threshold: float) -> int | None:
    """Return the first epoch, from 1, at which a curve is at or above a threshold, or None."""
    reached = np.flatnonzero(curve >= threshold)
    return int(reached[0]) + 1 if reached.size else None


def pearson(a: np.ndarray, b: np.ndarray) -> float | None:
    """Return Pearson's r of two curves of equal length, or None where it is undefined."""
    return correlations(np.stack([a, b])).mean


def correlations(curves: np.ndarray) -> Correlations:
    """Return Pearson's r over all pairs of curves, pairs on one device included.

    r is the sum of products of deviations, added in the order of the epochs, over the square root
    of the product of the sums of squares. In this order of operations the article's files yield
    its published 0.9850692095403718 to the last digit (exactly, the mean is 0.98506920954037173).

    Args:
        curves: Test accuracy. Shape (runs, epochs).
    """
    num_pairs = math.comb(len(curves), 2)
    # Compared as they are: the deviations of a constant curve need not come out as zero.
    varying = np.flatnonzero(curves.min(axis=1) != curves.max(axis=1))
    num_defined = math.comb(len(varying), 2) if curves.shape[1] >= MIN_EPOCHS else 0
    if not num_defined:
        return Correlations(None, None, None, num_pairs)
    lowest, total = [], 0
    for block in _blocks(curves[varying]):
        lowest.append(block.lowest())
        total += block.total()
    r, i, j = min(lowest)
    return Correlations(
        mean=total / 2**_BITS / num_defined,
        lowest=r,
        lowest_pair=(int(varying[i]), int(varying[j])),
        num_undefined=num_pairs - num_defined,
    )


class _Block(NamedTuple):
    """Some rows of the correlation matrix, from their diagonal on."""

    first_row: int
    r: np.ndarray
    """Row i, column j: curves first_row + i and first_row + j."""

    def total(self) -> int:
        """Return the exact sum of every r right of the diagonal, in units of 2**-_BITS.

        Whole numbers add up to the last bit in any order, and faster than `math.fsum` adds floats
        one by one: an r is cut into pieces, of which 2**31 add up within 64 bits.
        """
        rest, total = np.triu(self.r, 1), 0
        piece = np.empty_like(rest)
        for bits in range(_PIECE, _BITS + 1, _PIECE):
            np.rint(np.multiply(rest, 2.0**bits, out=piece), out=piece)
            total += int(piece.astype(np.int64).sum()) << (_BITS - bits)
            rest -= np.multiply(piece, 2.0**-bits, out=piece)
        return total

    def lowest(self) -> tuple[float, int, int]:
        """Return the smallest r right of the diagonal, with its row and column; inf if none."""
        right = np.where(np.triu(np.ones(self.r.shape, bool), 1), self.r, np.inf)
        i, j = divmod(int(right.argmin()), right.shape[1])
        return float(right[i, j]), self.first_row + i, self.first_row + j


def _blocks(curves: np.ndarray) -> Iterator[_Block]:
    deviations = curves - np.array([[mean(curve)] for curve in curves])
    squares = np.array([math.fsum(values**2) for values in deviations])
    for start in range(0, len(curves), _BLOCK):
        rows, columns = deviations[start : start + _BLOCK], deviations[start:]
        products, product = np.zeros((2, len(rows), len(columns)))
        for epoch in range(curves.shape[1]):
            products += np.multiply(rows[:, epoch, None], columns[None, :, epoch], out=product)
        scale = np.sqrt(squares[start : start + _BLOCK, None] * squares[None, start:])
        yield _Block(start, np.clip(products / scale, -1.0, 1.0))


def spread(
    test_accuracies: Sequence[np.ndarray], train_losses: Sequence[np.ndarray], *, threshold: float
) -> Spread:
    """Return how far runs lie apart. They are cut to the epochs that all of them have.

    Args:
        test_accuracies: Percent, one curve a run. Shapes (epochs,), at least one epoch each.
        train_losses: Nats, in the order of the runs. Shapes (epochs,).
        threshold: Test accuracy that counts as reached, percent.
    """
    lengths = [len(curve) for curve in test_accuracies]
    num_epochs = min(lengths)
    curves = np.stack([curve[:num_epochs] for curve in test_accuracies])
    final = curves[:, -1].tolist()
    first_losses = [float(losses[0]) for losses in train_losses]
    middle = mean_curve(curves)
    return Spread(
        num_runs=len(curves),
        num_epochs=num_epochs,
        longest=max(lengths),
        mean_accuracy=mean(final),
        std_accuracy=population_std(final),
        min_accuracy=min(final),
        max_accuracy=max(final),
        max_difference=difference(max(final), min(final)),
        correlations=correlations(curves),
        first_loss_gap=max(first_losses) - min(first_losses),
        threshold_epoch=epoch_reaching(middle, threshold),
        stability=population_std(middle),
    )


class Equivalence(NamedTuple):
    """How close the means of two groups are known to be."""

    low: float
    high: float
    """90 % confidence interval of the first mean minus the second, pp."""
    paired: bool
    """Whether it is over differences by seed, and not over runs taken as independent."""

    @property
    def margin(self) -> float:
        """The smallest margin within which the groups are equivalent, pp."""
        return max(abs(self.low), abs(self.high))


def equivalence(a: Sequence[float], b: Sequence[float]) -> Equivalence | None:
    """Return the 90 % confidence interval of the difference of two means, runs independent.

    Two one-sided tests at 5 % find the groups equivalent at just those margins that hold it whole.

    Args:
        a: Final test accuracy per run, percent. Shape (n,).
        b: Those of the other group. Shape (m,).

    Returns:
        None where it cannot be known: a group of one run, or no spread in both.

    Source: Schuirmann 1987, doi:10.1007/BF01068419; Welch's variances and degrees of freedom.
    """
    if min(len(a), len(b)) < 2:
        return None
    # Of the means, not of the runs: squares of the standard errors, ddof 1.
    errors = [population_std(x) ** 2 / (len(x) - 1) for x in (a, b)]
    if sum(errors) == 0:
        return None
    weights = [e**2 / (len(x) - 1) for e, x in zip(errors, (a, b), strict=True)]
    degrees = sum(errors) ** 2 / sum(weights)
    return _interval(mean(a) - mean(b), math.sqrt(sum(errors)), degrees, paired=False)


def paired_equivalence(differences: Sequence[float]) -> Equivalence | None:
    """Return the 90 % confidence interval of the mean of differences by seed.

    Two groups over the same seeds share what a seed does to a run, which so cancels.

    Args:
        differences: Accuracy of the first group minus that of the second for each seed, pp.
            Shape (seeds,).

    Returns:
        None where it cannot be known: one seed, or no spread.
    """
    error = population_std(differences)
    if len(differences) < 2 or error == 0:
        return None
    degrees = len(differences) - 1
    return _interval(mean(differences), error / math.sqrt(degrees), degrees, paired=True)


def _interval(centre: float, error: float, degrees: float, *, paired: bool) -> Equivalence:
    from scipy.special import stdtrit  # loads in 0.2 s, which `--help` need not wait for

    half = float(stdtrit(degrees, 0.95)) * error
    return Equivalence(centre - half, centre + half, paired)
