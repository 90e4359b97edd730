"""Confounding: settings that changed only together with others, and means that mix settings.

Two runs that differ in one setting say what it does. Where a setting changed only together with
another, no run says which of the two did it; and a mean over unlike settings in unlike numbers
says as much about those as about what it was meant for.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from parity.contrasts import differing
from parity.results import Result

NO_SUSPECTS = {"file_kind"}
"""It names the script that ran, which the settings describe."""

_MAX_SEARCHED = 300
"""Combinations of settings among which the closest pair is looked for."""


class Confounded(NamedTuple):
    """A setting, or one value of it, that never changed alone."""

    field: str
    value: Any
    """The value that no two otherwise equal runs set against another; None: no value of it."""
    platform: str | None
    """Where it is so; None for everywhere."""
    others: tuple[str, ...]
    """What changed with it in the runs that are most alike."""
    pair: tuple[int, int]
    """Two such runs."""


class Mixed(NamedTuple):
    """A setting with several values in one group."""

    field: str
    counts: tuple[tuple[Any, int], ...]
    """Runs with each value, the most frequent first."""


class Mixture(NamedTuple):
    """A group of which the mean takes in several settings."""

    group: int
    """Position in the comparison's groups."""
    mixed: tuple[Mixed, ...]
    balanced: bool
    """Whether every combination of their values is there equally often."""


def confounded(
    results: Sequence[Result], members: Sequence[int], set_of: dict[int, int]
) -> list[Confounded]:
    """Return the settings that changed only together with others, everywhere or on one platform.

    Only runs that could be compared count: of one data, stream and initial weights, and of one
    kind of file. Arguments as for `contrasts`; copies may stay in.
    """
    names = differing(results, members)
    suspects = [name for name in names if name not in NO_SUSPECTS]
    alike = _alike(results, members, names, set_of)
    found: list[Confounded] = []
    for field in suspects:
        everywhere = list(_never_alone(results, field, alike, names, None))
        found += everywhere
        if field == "platform" or any(entry.value is None for entry in everywhere):
            continue
        for platform in sorted({results[i].platform for i in members}):
            there = [[i for i in cells if results[i].platform == platform] for cells in alike]
            for entry in _never_alone(results, field, there, names, platform):
                if (entry.field, entry.value) not in {(e.field, e.value) for e in everywhere}:
                    found.append(entry)
    return found


def _alike(
    results: Sequence[Result],
    members: Sequence[int],
    names: Sequence[str],
    set_of: dict[int, int],
) -> list[list[int]]:
    """Return one run for each combination of settings within a set and a kind of file.

    Sets with the very combinations of another one, as other seeds have, are left out.
    """
    sets: dict[Hashable, dict[Hashable, int]] = defaultdict(dict)
    for i in members:
        place = set_of[i], str(results[i].facts.get("file_kind"))
        settings = tuple(str(results[i].facts.get(name)) for name in names)
        sets[place].setdefault(settings, i)
    different: dict[frozenset[Hashable], list[int]] = {}
    for cells in sets.values():
        different.setdefault(frozenset(cells), list(cells.values()))
    return list(different.values())


def _never_alone(
    results: Sequence[Result],
    field: str,
    alike: Sequence[Sequence[int]],
    names: Sequence[str],
    platform: str | None,
) -> Iterator[Confounded]:
    known = [[i for i in cells if results[i].facts.get(field) is not None] for cells in alike]
    others = [name for name in names if name != field]
    values: dict[str, Any] = {}
    alone: set[str] = set()
    for cells in known:
        blocks: dict[Hashable, set[str]] = defaultdict(set)
        for i in cells:
            value = results[i].facts[field]
            blocks[tuple(str(results[i].facts.get(n)) for n in others)].add(str(value))
            values[str(value)] = value
        # A setting that has one value within the set did not change there at all.
        for found in blocks.values():
            alone |= found if len(found) > 1 else set()
    changed = {
        value: pair
        for value in values
        if value not in alone
        and (pair := _closest(results, field, value, known, others)) is not None
    }
    if changed and not alone:
        changed = {value: changed[value] for value in list(changed)[:1]}
    for value, (i, j) in changed.items():
        yield Confounded(
            field=field,
            value=values[value] if alone else None,
            platform=platform,
            others=tuple(_changed(results, i, j, others)),
            pair=(min(i, j), max(i, j)),
        )


def _closest(
    results: Sequence[Result],
    field: str,
    value: str,
    alike: Sequence[Sequence[int]],
    others: Sequence[str],
) -> tuple[int, int] | None:
    """Return the runs most alike of which one has the value and one another; None if no set has."""
    best: tuple[int, int, int] | None = None
    for cells in alike:
        some = cells[:_MAX_SEARCHED]
        mine = [i for i in some if str(results[i].facts[field]) == value]
        for i in mine:
            for j in some:
                if str(results[j].facts[field]) != value:
                    candidate = len(_changed(results, i, j, others)), i, j
                    best = candidate if best is None else min(best, candidate)
    return None if best is None else best[1:]


def _changed(results: Sequence[Result], i: int, j: int, names: Sequence[str]) -> list[str]:
    a, b = results[i].facts, results[j].facts
    return [name for name in names if str(a.get(name)) != str(b.get(name))]


def mixture(results: Sequence[Result], group: int, members: Sequence[int]) -> Mixture | None:
    """Return what a group mixes, kinds of file and seeds aside, or None."""
    names = [name for name in differing(results, members) if name not in NO_SUSPECTS]
    if not names:
        return None
    mixed = []
    for name in names:
        counts = Counter(str(results[i].facts.get(name)) for i in members)
        typed = {str(results[i].facts.get(name)): results[i].facts.get(name) for i in members}
        mixed.append(Mixed(name, tuple((typed[v], n) for v, n in counts.most_common())))
    cells = Counter(tuple(str(results[i].facts.get(n)) for n in names) for i in members)
    full = math.prod(len(entry.counts) for entry in mixed)
    return Mixture(group, tuple(mixed), len(cells) == full and len(set(cells.values())) == 1)
