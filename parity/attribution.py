"""Attribution: how much of the difference between two platforms each operation brings.

Where every operation but one is exact, that one is the only source of difference between two
platforms. The ladder of such pairs of runs, one for each operation, stands between two others: all
operations native, which is float32 and the difference to explain, and none, which is exact and must
agree in every bit.

**What is compared.** The weights after a few steps, tensor by tensor: the sum of |a - b|, relative
to the sum of what training moved them by. A sum of magnitudes, because a weight is rounded to its
own last place, which is coarse beside a step: a tiny difference then shows in few weights, by a
whole unit each, and only the sum keeps its size. The *typical* tensor (the median) says what
roundings amount to. The *farthest* one says whether a rounding made ReLU or max-pool choose
otherwise somewhere, which is up to a thousand times as much in every tensor below and depends on
the batch. The biases of the convolutions are left out: BatchNorm cancels them, so that their
gradient is rounding noise, which Adam and RMSprop divide by its own size.

**What it cannot tell.** Training is chaotic. PyTorch against JAX on a CPU (digits, batch 32, Adam),
the typical tensor differed by 8e-7 to 8e-6 after two steps, depending on the operation, and by 7e-3
to 4e-2, whichever it was, after 16. So few steps are the rule. And exact products coarsen: of the
18 to 20 bits of their operands a tiny difference moves a few by a whole unit, which is more in the
sums that follow (BatchNorm alone, batch 128, made seven times what all operations did together). So
the shares need not add up to 100 %. That of `dot` is as it is, because no product is exact beside
it; those of the others rank them among themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from parity.architecture import PARAMETERS
from parity.bits import Step, first_different_step, loss_closeness

SCHEMA = "training-parity/attribution/1"

FEW_STEPS = 4
"""With more steps differences have begun to grow into one another."""

OTHER_CHOICE = 5e-5
"""A farthest tensor beyond it tells of another choice. In pairs of runs of one or two steps
(digits, batch 32, Adam and SGD, CPUs) roundings left 2.3e-5 at most, and tensors below a unit that
had chosen otherwise 9e-5 and more, up to 2e-3."""

MUCH = 1.5
"""Shares above it are told as multiples."""

COMPARED = tuple(n for n in PARAMETERS if not (n.startswith("conv") and n.endswith("bias")))
"""Names of the tensors that are compared."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """How two runs differ that have the same operations native."""

    native: tuple[str, ...]
    """The operations that are native; all others are exact."""
    first_step: Step | None
    """First step whose loss differs in any bit; None where none does."""
    loss: float
    """Largest difference of a loss, relative to the larger one."""
    values_percent: float
    """Compared weights that differ in any bit, percent."""
    typical: float
    """Median over tensors of the difference relative to the way that training moved them."""
    farthest: float
    """The largest of these."""
    farthest_tensor: str

    @property
    def bitwise(self) -> bool:
        """Whether losses and compared weights have equal bits."""
        return self.first_step is None and not self.values_percent


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The whole ladder."""

    sides: tuple[str, str]
    """What was compared, such as torch:cpu and jax:cpu."""
    num_steps: int
    everything: Rung
    """All operations native: the difference to explain."""
    alone: tuple[Rung, ...]
    """One operation native; empty where there is nothing to explain."""
    nothing: Rung | None
    """No operation native: must be bitwise identical."""

    def share(self, rung: Rung) -> float | None:
        """Return a rung's difference in the typical tensor as a share of that to explain."""
        return rung.typical / self.everything.typical if self.everything.typical else None

    def to_json(self) -> dict[str, Any]:
        """Return everything at full precision as plain JSON values."""
        shares = [self.share(rung) for rung in self.alone]
        return {"schema": SCHEMA} | asdict(self) | {"shares": shares, "verdict": in_words(self)}


def measure(
    native: tuple[str, ...],
    losses: tuple[np.ndarray, np.ndarray],
    weights: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]],
    start: Mapping[str, np.ndarray],
) -> Rung:
    """Return how two runs differ.

    Args:
        native: Their native operations.
        losses: Of every step. Shapes (steps,), float32.
        weights: Final weights by canonical name.
        start: The weights that both began with.
    """
    a, b = weights
    far = {name: _relative(a[name], b[name], start[name]) for name in COMPARED}
    farthest = max(far, key=lambda name: far[name])
    unequal = sum(int((_bits(a[name]) != _bits(b[name])).sum()) for name in COMPARED)
    closeness = loss_closeness(losses)
    assert closeness is not None, "a run has at least one step"
    return Rung(
        native=native,
        first_step=first_different_step(losses),
        loss=closeness.difference,
        values_percent=100 * unequal / sum(a[name].size for name in COMPARED),
        typical=float(np.median(list(far.values()))),
        farthest=far[farthest],
        farthest_tensor=farthest,
    )


def _relative(a: np.ndarray, b: np.ndarray, start: np.ndarray) -> float:
    a, b, start = (x.astype(np.float64) for x in (a, b, start))
    moved = max(np.abs(a - start).sum(), np.abs(b - start).sum())
    return float(np.abs(a - b).sum() / moved) if moved else 0.0


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.itemsize}")


def in_words(attribution: Attribution) -> str:
    """Return which operation brings most of the difference, and what limits this answer."""
    a, b = attribution.sides
    everything, nothing = attribution.everything, attribution.nothing
    steps = f"{attribution.num_steps} step{'s' if attribution.num_steps > 1 else ''}"
    if everything.bitwise:
        return (
            f"{a} and {b} are bitwise identical in float32 after {steps}: there is no difference "
            "to attribute."
        )
    if nothing is not None and not nothing.bitwise:
        return (
            f"{a} and {b} differ even where every operation is exact. That must not be, and makes "
            "this table worthless: one of the two computes wrongly, which is worth a bug report."
        )
    if not everything.typical:
        operations = [rung.native[0] for rung in attribution.alone if not rung.bitwise]
        return (
            f"After {steps} the weights of {a} and {b} agree in the typical tensor to the bit. "
            + _losses_in_words(everything, operations)
        )
    sentences = _most(attribution), _choice(attribution), _caution(attribution)
    return " ".join(sentence for sentence in sentences if sentence)


def _losses_in_words(everything: Rung, operations: Sequence[str]) -> str:
    alone = f"of single operations {_listed(operations)} does so" if operations else "none alone"
    where = f"from step {everything.first_step.step} on" if everything.first_step else "nowhere"
    return f"Losses differ {where}; {alone}."


def _most(attribution: Attribution) -> str:
    dot = next((rung for rung in attribution.alone if rung.native == ("dot",)), None)
    others = [rung for rung in attribution.alone if rung is not dot and rung.typical]
    others.sort(key=lambda rung: -rung.typical)
    names = [rung.native[0] for rung in others if rung.typical > others[0].typical / 2]
    most = f"{_listed(names)} {'makes' if len(names) == 1 else 'make'} most"
    if dot is None or not dot.typical:
        return f"Of the operations tried {most} of the difference." if names else _NONE_ALONE
    share = attribution.share(dot)
    assert share is not None, "there is a difference to explain"
    amount = share_in_words(share)
    of = " of" if share <= MUCH else ""
    alone = f"dot alone makes {amount}{of} the difference in the typical tensor"
    # Independent roundings add by their squares: 0.7 is half of it, and 0.3 a tenth.
    if share > 0.7 or not names:
        return f"{alone}: most of it." + (f" Of the others {most}." if names else "")
    if share > 0.3:
        return f"{alone}. Of the rest {most}."
    return f"{most} of the difference in the typical tensor; dot alone makes {amount}."


_NONE_ALONE = (
    "No operation alone makes a difference in the typical tensor: only together do they, for "
    "instance where a compiler fuses them."
)


def _choice(attribution: Attribution) -> str:
    """Return where the farthest tensor tells something else than the typical one."""
    far = [rung for rung in attribution.alone if rung.farthest > OTHER_CHOICE]
    if not far or attribution.num_steps > FEW_STEPS:
        return ""
    farthest = max(far, key=lambda rung: rung.farthest)
    return (
        f"With {_listed([rung.native[0] for rung in far])} native, ReLU or max-pool seem to have "
        f"chosen otherwise somewhere: {farthest.farthest_tensor} is {farthest.farthest:.0e} apart. "
        "Which operation does that is a matter of the batch."
    )


def _caution(attribution: Attribution) -> str:
    if attribution.num_steps <= FEW_STEPS:
        return ""
    return (
        f"After {attribution.num_steps} steps, though, every difference has grown, whichever "
        f"operation it began in: ask with at most {FEW_STEPS}."
    )


def share_in_words(share: float) -> str:
    """Return a share: "0 %", "< 1 %", "98 %", "3.1 times"."""
    if share > MUCH:
        return f"{share:.1f} times" if share < 10 else f"{share:.0f} times"
    return "< 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)
