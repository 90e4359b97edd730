"""Bits: the first step and epoch at which runs differ in any bit, and how their predictions do.

Everything here holds for two runs or many: a step differs when not all runs agree on it, so that
neither the order of the runs nor the choice of a reference changes an answer.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parity.results import Result
from parity.weights import ulp_distance

CLOSE_STEP = 50
"""The step up to which losses are compared by value: late enough that an error in meaning shows,
too early for rounding, which training amplifies from step to step, to have grown."""

CLOSE_RTOL = {"float32": 1e-2, "float64": 1e-8}
"""Largest relative difference of a loss up to `CLOSE_STEP` that is still called close. In float64
two correct implementations agree to about 1e-10 there, and a difference in meaning shows at 1e-6
or more. float32 rounds 2**29 times more coarsely, so that nothing sharper than a percent holds."""


class Step(NamedTuple):
    """The first step at which losses differ."""

    step: int
    """From 1, counted through all epochs."""
    ulp: int | None
    """ULP distance between the smallest and the largest loss there; None across precisions."""


class Closeness(NamedTuple):
    """How close losses stay, by value."""

    step: int
    """Steps compared: `CLOSE_STEP`, or all where a run has fewer."""
    difference: float
    """Largest difference up to there, relative to the larger loss."""
    tolerance: float
    """What is still called close in this arithmetic."""

    @property
    def close(self) -> bool:
        """Whether the losses are close."""
        return self.difference <= self.tolerance


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What two or more runs have in common, bit by bit. None where a run does not record it."""

    num_epochs: int
    """Epochs that all runs have."""
    figures_equal: bool
    """Whether every loss and accuracy of these epochs has equal bits in all runs."""
    digest: str | None
    """SHA-256 of the weights after the last common epoch, if all runs agree on all digests."""
    first_epoch: int | None
    """First epoch whose weight digest differs; None also where none does."""
    num_steps: int | None
    """Steps that all runs have."""
    first_step: Step | None
    """First step whose loss differs in any bit; None also where none does."""
    closeness: Closeness | None
    predictions_percent: float | None
    """Share of test images on which not all runs predict one class, percent."""

    @property
    def bitwise(self) -> bool:
        """Whether weights, figures, step losses and predictions have equal bits.

        False where no weight digest is recorded: equal figures alone do not show equal weights.
        """
        return (
            self.digest is not None
            and self.figures_equal
            and self.first_step is None
            and not self.predictions_percent
        )


def agreement(
    results: Sequence[Result], predictions: Sequence[np.ndarray | None] | None
) -> Agreement:
    """Return what two or more runs have in common.

    Args:
        results: The runs; at least two.
        predictions: Predicted classes of each, or None where the test sets are not one. They are
            those of the last epoch, and so compared only if all runs have equally many.
    """
    num_epochs = min(len(result.curves) for result in results)
    if num_epochs < max(len(result.curves) for result in results):
        predictions = None
    figures = {result.curves.until(num_epochs).bits() for result in results}
    digests = [result.digests for result in results if result.digests is not None]
    losses = [result.step_losses for result in results if result.step_losses is not None]
    digest = first_epoch = num_steps = first_step = closeness = None
    if len(digests) == len(results) and num_epochs:
        first_epoch = first_different_epoch(digests)
        digest = digests[0][num_epochs - 1] if first_epoch is None else None
    if len(losses) == len(results):
        num_steps = min(map(len, losses))
        first_step = first_different_step(losses)
        closeness = loss_closeness(losses)
    return Agreement(
        num_epochs=num_epochs,
        figures_equal=len(figures) == 1 and num_epochs > 0,
        digest=digest,
        first_epoch=first_epoch,
        num_steps=num_steps,
        first_step=first_step,
        closeness=closeness,
        predictions_percent=None if predictions is None else predictions_differ(predictions),
    )


def first_different_epoch(digests: Sequence[Sequence[str]]) -> int | None:
    """Return the first epoch, from 1, at which digests differ, among those that all runs have."""
    for epoch, values in enumerate(zip(*digests, strict=False), start=1):
        if len(set(values)) > 1:
            return epoch
    return None


def first_different_step(losses: Sequence[np.ndarray]) -> Step | None:
    """Return the first step whose losses differ in any bit, among those that all runs have.

    Losses of different precision differ from the first step on.

    Args:
        losses: Shapes (steps,), float32 or float64.
    """
    num_steps = min(map(len, losses))
    if not num_steps:
        return None
    if len({values.dtype for values in losses}) > 1:
        return Step(1, None)
    patterns = [values[:num_steps].view(f"u{values.itemsize}") for values in losses]
    first = num_steps
    for pattern in patterns[1:]:
        different = pattern[:first] != patterns[0][:first]
        if different.any():
            first = int(different.argmax())
    if first == num_steps:
        return None
    there = np.array([values[first] for values in losses])
    if np.isnan(there).any():
        return Step(first + 1, None)
    return Step(first + 1, int(ulp_distance(there.max(keepdims=True), there.min(keepdims=True))[0]))


def loss_closeness(losses: Sequence[np.ndarray]) -> Closeness | None:
    """Return how close losses stay over the first steps; None where there is no step.

    Args:
        losses: Shapes (steps,), float32 or float64; the coarsest sets the tolerance.
    """
    step = min(CLOSE_STEP, *map(len, losses))
    if not step:
        return None
    early = np.stack([values[:step].astype(np.float64) for values in losses])
    scale = np.abs(early).max(axis=0)
    gap = early.max(axis=0) - early.min(axis=0)
    relative = np.divide(gap, scale, out=np.zeros(step), where=scale > 0)
    tolerance = max(CLOSE_RTOL[str(values.dtype)] for values in losses)
    return Closeness(step, float(relative.max()), tolerance)


def predictions_differ(predictions: Sequence[np.ndarray | None]) -> float | None:
    """Return on how many test images not all runs predict one class, percent.

    None where a run has no predictions, or the numbers of images differ.

    Args:
        predictions: Shapes (test images,), integer classes.
    """
    first = predictions[0]
    if first is None or not first.size:
        return None
    differ = np.zeros(first.shape, bool)
    for other in predictions[1:]:
        if other is None or other.shape != first.shape:
            return None
        differ |= other != first
    return 100 * int(differ.sum()) / differ.size


class Twins(NamedTuple):
    """Runs that agree in every bit of what they record, over all of their epochs."""

    members: tuple[int, ...]
    """Positions of the runs, at least two."""
    num_epochs: int
    digest: str | None
    """SHA-256 of the final weights; None for files that record figures alone."""


def twins(results: Sequence[Result]) -> list[Twins]:
    """Return the sets of runs that are copies of one another, and so no independent evidence.

    Two runs are twins when all figures and weight digests of all epochs have equal bits; in the
    article's files, which hold no digests, when all figures have.
    """
    by_bits: dict[Hashable, list[int]] = defaultdict(list)
    for i, result in enumerate(results):
        if len(result.curves):
            by_bits[result.digests, result.curves.bits()].append(i)
    return [
        Twins(
            tuple(members),
            len(results[members[0]].curves),
            digests[-1] if (digests := results[members[0]].digests) else None,
        )
        for members in by_bits.values()
        if len(members) > 1
    ]
