"""Verdict: the article's categories and danger signs for a pool of runs, and what they mean.

The article's "Bit-exact" compares final accuracies and not bits; `parity.bits` compares bits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from parity.bits import Agreement, agreement
from parity.curves import Spread, difference, spread
from parity.results import Result

CATEGORIES = (
    "Bit-exact",
    "Statistical (good)",
    "Statistical (acceptable)",
    "Problem",
)

LOSS_GAP_LIMIT = 0.10
"""Relative. Within the groups of the article's files it is 0.002 to 0.023."""

FIT_LIMIT = 5.0
"""Percentage points, ten times the sampling error of an accuracy over 10,000 images."""

CORRELATION_LIMIT = 0.95
"""The article's own number."""


class Sign(NamedTuple):
    """One of the article's three danger signs, with the pair of runs that shows it most."""

    name: Literal["loss gap", "fit", "correlation"]
    present: bool
    value: float | None
    """None where it is undefined."""
    pair: tuple[int, int] | None
    """Positions in the results compared."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Two or more runs, or one, taken together."""

    members: tuple[int, ...]
    """Positions in the results compared."""
    comparable: bool
    """Whether data, stream and initial weights are one, as far as recorded."""
    spread: Spread
    category: str | None
    """The article's; None for one run, or where an undefined correlation would decide it."""
    signs: tuple[Sign, ...]
    """Empty for one run."""
    agreement: Agreement | None
    """Bit by bit; None for one run, or where runs are not comparable."""


def pool(
    results: Sequence[Result],
    members: Sequence[int],
    predictions: Sequence[np.ndarray | None],
    *,
    comparable: bool,
    threshold: float,
) -> Pool:
    """Return what some of the results amount to, taken together.

    Args:
        results: All results compared.
        members: Positions of those to pool; each has at least one epoch.
        predictions: Predicted classes of all results.
        comparable: Whether the members form one comparable set.
        threshold: Test accuracy that counts as reached, percent.
    """
    chosen = [results[i] for i in members]
    figures = spread(
        [result.curves.test_accuracy for result in chosen],
        [result.curves.train_loss for result in chosen],
        threshold=threshold,
    )
    if (pair := figures.correlations.lowest_pair) is not None:
        lowest_pair = members[pair[0]], members[pair[1]]
        figures = replace(
            figures, correlations=figures.correlations._replace(lowest_pair=lowest_pair)
        )
    several = len(chosen) > 1
    data = {(result.fingerprints or {}).get("data") for result in chosen}
    images = [predictions[i] for i in members] if len(data) == 1 else None
    return Pool(
        members=tuple(members),
        comparable=comparable,
        spread=figures,
        category=category(figures.max_difference, figures.correlations.mean) if several else None,
        signs=danger_signs(chosen, members, figures) if several else (),
        agreement=agreement(chosen, images) if several and comparable else None,
    )


def category(max_difference: float, mean_correlation: float | None) -> str | None:
    """Return the article's category.

    In order: Max_Diff < 0.01 "Bit-exact"; < 0.5 and r > 0.99 "Statistical (good)"; < 2.0 and
    r > 0.95 "Statistical (acceptable)"; else "Problem".

    Args:
        max_difference: Largest minus smallest final test accuracy, pp.
        mean_correlation: Mean Pearson r over all pairs of test-accuracy curves.

    Returns:
        None where the correlation decides and is undefined.
    """
    bit_exact, good, acceptable, problem = CATEGORIES
    if max_difference < 0.01:
        return bit_exact
    if max_difference >= 2.0:
        return problem
    if mean_correlation is None:
        return None
    if max_difference < 0.5 and mean_correlation > 0.99:
        return good
    return acceptable if mean_correlation > 0.95 else problem


def danger_signs(
    results: Sequence[Result], positions: Sequence[int], figures: Spread
) -> tuple[Sign, ...]:
    """Return the article's three signs of a serious problem, which its text names without numbers.

    loss gap: the training losses of epoch 1 differ by more than 10 % of the smallest. Within the
    groups of the article's files they differ by 0.2 to 2.3 %.

    fit: one run overfits while another underfits. At the last common epoch its training accuracy
    is more than 5 pp higher, and its gap between training and test accuracy is more than 5 pp
    wider: what it gained on training images did not reach the test images. (With dropout and
    augmentation both gaps may be negative, so no run is judged alone.)

    correlation: some pair of test-accuracy curves has Pearson r below 0.95.

    Args:
        results: At least two.
        positions: Their positions in the results compared.
        figures: Their spread, with positions in the results compared.
    """
    last = figures.num_epochs - 1
    losses = np.array([result.curves.train_loss[0] for result in results])
    train = np.array([result.curves.train_accuracy[last] for result in results])
    gap = train - np.array([result.curves.test_accuracy[last] for result in results])
    low, high = int(losses.argmin()), int(losses.argmax())
    relative = figures.first_loss_gap / losses[low] if losses[low] > 0 else math.inf
    fit, fit_pair = _fit(train, gap)
    r = figures.correlations

    def pair(i: int, j: int) -> tuple[int, int] | None:
        return (positions[min(i, j)], positions[max(i, j)]) if i != j else None

    return (
        Sign(
            "loss gap",
            figures.first_loss_gap > 0 and bool(relative > LOSS_GAP_LIMIT),
            float(relative) if math.isfinite(relative) else None,
            pair(low, high),
        ),
        Sign("fit", fit > FIT_LIMIT, fit, pair(*fit_pair)),
        Sign(
            "correlation",
            r.lowest is not None and r.lowest < CORRELATION_LIMIT,
            r.lowest,
            r.lowest_pair,
        ),
    )


def _fit(train: np.ndarray, gap: np.ndarray) -> tuple[float, tuple[int, int]]:
    """Return by how much the worst pair is apart in both, pp, and that pair; 0 if none is."""
    worst, pair = 0.0, (0, 0)
    for i in range(len(train)):
        apart = np.minimum(train[i] - train, gap[i] - gap)
        j = int(apart.argmax())
        if apart[j] > worst:
            worst, pair = float(apart[j]), (i, j)
    return difference(worst, 0.0), pair


def in_words(pool: Pool) -> list[str]:
    """Return one to three sentences on what a pool shows."""
    num_runs, figures = pool.spread.num_runs, pool.spread
    if num_runs == 1:
        return ["One finished run: there is nothing to compare it with."]
    if pool.agreement and pool.agreement.bitwise:
        return [_bitwise(num_runs, pool.agreement)]
    sentences = _bits_in_words(pool.agreement) if pool.agreement else []
    r = figures.correlations.mean
    named = f'"{pool.category}"' if pool.category else "none, for want of a correlation"
    sentences.append(
        f"Final test accuracies lie within {figures.max_difference:.4g} pp over {num_runs:,} runs, "
        f"mean correlation of the curves {'undefined' if r is None else f'{r:.5f}'}; the "
        f"article's category: {named}."
    )
    return sentences


def _bitwise(num_runs: int, bits: Agreement) -> str:
    return (
        f"Bitwise identical: {num_runs:,} runs agree in every weight after {_epochs(bits)}, in "
        f"every logged figure and in all {bits.num_steps or 0:,} step losses."
    )


def _epochs(bits: Agreement) -> str:
    epochs = "1 epoch" if bits.num_epochs == 1 else f"each of {bits.num_epochs} epochs"
    return f"{epochs} (sha256 {bits.digest[:12]})" if bits.digest else epochs


def _bits_in_words(bits: Agreement) -> list[str]:
    if bits.num_steps is None:
        return []
    parts = []
    if bits.digest:
        figures = "" if bits.figures_equal else ", but logged figures differ"
        parts.append(f"weights are bitwise identical after {_epochs(bits)}{figures}")
    if bits.first_step:
        ulp = "" if bits.first_step.ulp is None else f" by {bits.first_step.ulp:,} ulp"
        parts.append(f"a loss first differs at step {bits.first_step.step:,}{ulp}")
    if bits.first_epoch:
        parts.append(f"weights first differ after epoch {bits.first_epoch}")
    if bits.predictions_percent:
        parts.append(f"predictions differ on {bits.predictions_percent:.2f} % of the test images")
    sentences = [f"Not bitwise: {', '.join(parts)}."]
    if bits.closeness:
        word = "Close" if bits.closeness.close else "Not close"
        sentences.append(
            f"{word}: up to step {bits.closeness.step} losses differ by at most "
            f"{bits.closeness.difference:.1e} (relative; tolerance {bits.closeness.tolerance:.0e})."
        )
    return sentences
