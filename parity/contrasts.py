"""Contrasts: pairs of runs that differ in one thing alone, and what that does to the accuracy."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from parity.bits import Twins
from parity.curves import difference, mean
from parity.effects import SETTINGS
from parity.provenance import CAUSES
from parity.results import Result

STREAM = {*CAUSES["stream"], *CAUSES["initial_weights"], "workers"}
"""Settings that may change the random stream or the initial weights."""

MAX_EXAMPLES = 20
"""Pairs of runs that are named."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Pairs of runs that differ in one thing alone, copies counted once."""

    field: str | None
    """The setting, or seed; None for repeats, which differ in no setting."""
    optimizer: str | None
    """Of both runs, on which the noise depends; None for pairs that differ in it."""
    other_stream: bool
    """Whether such a pair draws other random numbers, as far as can be told: then it is no
    evidence of hardware or arithmetic."""
    num_pairs: int
    typical: float
    """Root of the mean square of the difference in final accuracy, pp."""
    largest: float
    """Pp."""
    examples: tuple[tuple[int, int], ...]
    """Some of the pairs, one for each two values that have all else in common."""


def distinct(
    results: Sequence[Result], members: Sequence[int], twins: Sequence[Twins]
) -> list[int]:
    """Return the members without copies: runs of one device whose bits and known settings agree.

    Runs that agree in every bit under two settings are kept: they show that it has no effect.
    """
    copy = {i: number for number, twin in enumerate(twins) for i in twin.members}
    kept: list[int] = []
    of_twin: dict[int, list[int]] = defaultdict(list)
    for i in members:
        if i in copy:
            if any(not unlike(results[i], results[j]) for j in of_twin[copy[i]]):
                continue
            of_twin[copy[i]].append(i)
        kept.append(i)
    return kept


def unlike(a: Result, b: Result) -> list[str]:
    """Return the settings, and the seed, of which two results are known to have other values."""
    return [
        name
        for name in (*SETTINGS, "seed")
        if name != "file_kind"
        and None not in (one := (a.facts.get(name), b.facts.get(name)))
        and one[0] != one[1]
    ]


def contrasts(
    results: Sequence[Result], members: Sequence[int], set_of: dict[int, int]
) -> list[Contrast]:
    """Return what differs between runs that differ in nothing, in a setting, or in the seed.

    Args:
        results: All results compared.
        members: Positions of finished ones, copies left out.
        set_of: Number of the comparable set of each.
    """
    names = differing(results, members)
    found: list[Contrast] = []
    for field in (None, *names, "seed"):
        # By optimizer, because what adam does within 0.3 pp rmsprop may do within 3.
        parts: dict[str | None, list[int]] = defaultdict(list)
        for i in members:
            parts[None if field == "optimizer" else results[i].optimizer].append(i)
        for optimizer, part in parts.items():
            blocks: dict[Hashable, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
            for i in part:
                value = str(results[i].facts.get(field)) if field else str(i)
                blocks[block_of(results, i, names, set_of, without=field)][value].append(i)
            contrast = _contrast(results, field, optimizer, list(blocks.values()), set_of)
            if contrast is not None:
                found.append(contrast)
    return found


def differing(results: Sequence[Result], members: Sequence[int]) -> list[str]:
    """Return the settings of which some of the members have different values."""
    return [n for n in SETTINGS if len({str(results[i].facts.get(n)) for i in members}) > 1]


def block_of(
    results: Sequence[Result],
    i: int,
    names: Sequence[str],
    set_of: dict[int, int],
    *,
    without: str | None,
) -> Hashable:
    """Return what a run must have in common with another, so that only one thing differs."""
    result = results[i]
    return (
        (result.fingerprints or {}).get("data"),
        None if without == "seed" else result.seed,
        None if without in STREAM else set_of[i],
        *(str(result.facts.get(name)) for name in names if name != without),
    )


def _contrast(
    results: Sequence[Result],
    field: str | None,
    optimizer: str | None,
    blocks: Sequence[dict[str, list[int]]],
    set_of: dict[int, int],
) -> Contrast | None:
    squares, num_pairs, largest = 0.0, 0, 0.0
    examples: list[tuple[int, int]] = []
    other_stream = False
    for block in blocks:
        if len(block) < 2:
            continue
        final = {
            value: [float(results[i].curves.test_accuracy[-1]) for i in members]
            for value, members in block.items()
        }
        every = [x for values in final.values() for x in values]
        centre = mean(every)
        # All pairs of the block, less those within a value.
        squares += _squares(every, centre) - math.fsum(_squares(v, centre) for v in final.values())
        num_pairs += math.comb(len(every), 2) - sum(math.comb(len(v), 2) for v in final.values())
        largest = max(largest, _farthest(list(final.values())))
        firsts = [members[0] for members in block.values()]
        other_stream |= len({set_of[i] for i in firsts}) > 1
        for pair in combinations(sorted(firsts), 2):
            if len(examples) == MAX_EXAMPLES:
                break
            examples.append(pair)
    if not num_pairs:
        return None
    return Contrast(
        field=field,
        optimizer=optimizer,
        other_stream=other_stream,
        num_pairs=num_pairs,
        typical=math.sqrt(max(squares, 0.0) / num_pairs),
        largest=difference(largest, 0.0),
        examples=tuple(examples),
    )


def _squares(values: Sequence[float], centre: float) -> float:
    """Return the sum of squared differences over all pairs."""
    apart = [x - centre for x in values]
    return len(apart) * math.fsum(x * x for x in apart) - math.fsum(apart) ** 2


def _farthest(groups: Sequence[Sequence[float]]) -> float:
    """Return the largest distance between values of two groups."""
    tops = sorted((max(values), number) for number, values in enumerate(groups))
    bottoms = sorted((min(values), number) for number, values in enumerate(groups))
    candidates = [top - bottom for top, a in tops[-2:] for bottom, b in bottoms[:2] if a != b]
    return max(candidates)
