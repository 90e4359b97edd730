"""Comparison: groups, pooled figures, pairs and what differs, put together from results."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice
from typing import Any

import numpy as np

from parity.article.beside import Published, beside
from parity.article.figures import Figures, figures
from parity.article.files import ArticleFile
from parity.audit import Audit, audit
from parity.bits import Twins, twins
from parity.contrasts import distinct
from parity.crossed import Crossed, crossed
from parity.curves import Equivalence, difference, equivalence, mean, paired_equivalence
from parity.effects import Effect, effects
from parity.errors import UserError
from parity.provenance import (
    TREATMENTS,
    Difference,
    Obstacle,
    comparable_sets,
    differences,
    obstacles,
)
from parity.results import Result
from parity.verdict import Pool, pool

MAX_PAIRS = 300
"""With more pairs than that only the extreme ones are compared: 25 runs have 300."""

RUN_GROUPS = ("framework", "platform", "arithmetic", "optimizer")
"""How runs are grouped, besides by other treatments that differ, seeds excepted."""

ARTICLE_GROUPS = ("file_kind", "optimizer", "label")
"""How the article groups its files; the optimizer is in the label of none."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Finished runs that share the values of some fields."""

    values: dict[str, Any]
    members: tuple[int, ...]
    """All of its runs."""
    num_distinct: int
    """Copies, which agree in every bit, counted once."""
    sets: tuple[int, ...]
    """Positions of the comparable sets that its runs belong to."""
    pool: Pool
    """Its runs, each of several copies once; all of them where all are copies of one another."""


@dataclass(frozen=True, kw_only=True)
class GroupPair:
    """Two groups that cover the same comparable sets, for instance equal seeds."""

    groups: tuple[int, int]
    """Positions in the comparison's groups."""
    difference: float
    """Mean final accuracy of the first minus the second, pp; where they pair by seed, the mean of
    the differences within the seeds."""
    equivalence: Equivalence | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that comparing some results yields. Runs are positions in `results`, from 0."""

    results: tuple[Result, ...]
    threshold: float
    """Test accuracy that counts as reached, percent."""
    by: dict[str, tuple[str, ...]]
    """The fields of the groups, by kind of result."""
    sets: tuple[tuple[int, ...], ...]
    """Comparable sets of all results."""
    obstacles: tuple[Obstacle, ...]
    groups: tuple[Group, ...]
    group_pairs: tuple[GroupPair, ...]
    pooled: Pool | None
    """All finished runs; None where there are none."""
    set_pools: tuple[Pool, ...]
    """The finished runs of each comparable set that has at least two."""
    pairs: tuple[Pool, ...]
    """Comparable pairs of runs (if there is none, all), unfinished ones over their epochs."""
    num_pairs: int
    """Pairs that there would be; where `pairs` has fewer, it holds the extreme ones."""
    twins: tuple[Twins, ...]
    differences: tuple[Difference, ...]
    effects: tuple[Effect, ...]
    """Of the settings that differ between finished runs."""
    audit: Audit
    """What the finished runs can show at all."""
    crossed: tuple[Crossed, ...]
    """What framework, platform and seed each add to the variance, by configuration."""
    article: Figures | None
    """What the article publishes of its files; None where none is compared."""
    published: Published | None
    """Groups beside the article's devices; None where it was not asked for."""
    warnings: tuple[str, ...]


def compare(
    results: Sequence[Result],
    *,
    by: Sequence[str] = (),
    threshold: float,
    published: Sequence[ArticleFile] | None = None,
) -> Comparison:
    """Compare results with one another.

    Only finished runs enter groups and pooled figures: a failed or running run has no final
    accuracy. Pairs take every run with at least one epoch, over the epochs that both have.

    Args:
        results: At least one.
        by: Fields to group by; empty for `default_grouping`.
        threshold: Test accuracy that counts as reached, percent.
        published: The article's files, to set the groups beside its devices.

    Raises:
        UserError: If no result has a field of `by`.
    """
    _check_fields(results, by)
    kinds = dict.fromkeys(result.kind for result in results)
    differing = differences(results)
    defaults = {
        kind: default_grouping(
            kind,
            differing if len(kinds) == 1 else differences([r for r in results if r.kind == kind]),
        )
        for kind in kinds
    }
    fields = {kind: tuple(by) or defaults[kind] for kind in kinds}
    sets = comparable_sets(results)
    set_of = {i: number for number, members in enumerate(sets) for i in members}
    predictions, warnings = _predictions(results)

    def pooled(members: Sequence[int]) -> Pool:
        comparable = len({set_of[i] for i in members}) == 1
        return pool(results, members, predictions, comparable=comparable, threshold=threshold)

    finished = [i for i, result in enumerate(results) if result.finished and len(result.curves)]
    everything = pooled(finished) if finished else None
    done = set(finished)
    set_pools: list[Pool] = []
    for members in sets:
        ended = [i for i in members if i in done]
        if len(ended) > 1:
            whole = everything if len(ended) == len(finished) else None
            set_pools.append(whole or pooled(ended))
    copies = twins(results)
    original = {i: twin.members[0] for twin in copies for i in twin.members}
    groups: list[Group] = []
    for values, members in _grouped(results, finished, fields):
        once = list({original.get(i, i): i for i in reversed(members)}.values())[::-1]
        groups.append(
            Group(
                values=values,
                members=tuple(members),
                num_distinct=len(once),
                sets=tuple(sorted({set_of[i] for i in members})),
                pool=pooled(once if len(once) > 1 else members),
            )
        )
    usable = [i for i, result in enumerate(results) if len(result.curves)]
    num_pairs, chosen = _choose_pairs(
        results, usable, set_of, set_pools or ([everything] if everything else [])
    )
    return Comparison(
        results=tuple(results),
        threshold=threshold,
        by=fields,
        sets=tuple(sets),
        obstacles=tuple(obstacles(results)),
        groups=tuple(groups),
        group_pairs=tuple(_group_pairs(results, groups, set_of)),
        pooled=everything,
        set_pools=tuple(set_pools),
        pairs=tuple(pooled(pair) for pair in chosen),
        num_pairs=num_pairs,
        twins=tuple(copies),
        differences=tuple(differing),
        effects=tuple(effects([results[i] for i in distinct(results, finished, copies)])),
        audit=audit(
            results,
            finished,
            sets=sets,
            twins=copies,
            groups=[group.members for group in groups],
            experiment=defaults,
        ),
        crossed=tuple(crossed(results, finished, sets=sets, twins=copies, predictions=predictions)),
        article=figures(results, threshold=threshold),
        published=(
            None
            if published is None
            else beside(results, [group.pool.members for group in groups], published)
        ),
        warnings=tuple(warnings),
    )


def default_grouping(kind: str, found: Sequence[Difference]) -> tuple[str, ...]:
    """Return the fields that results of one kind, differing in `found`, are by default grouped by.

    Runs: framework, platform, arithmetic, optimizer, and every other treatment that differs, but
    not the seed, over which groups are pooled. The article's files: kind, optimizer and its label.
    """
    if kind == "article":
        return ARTICLE_GROUPS
    differing = {d.field for d in found}
    others = [name for name in TREATMENTS if name in differing - {*RUN_GROUPS, "seed"}]
    return (*RUN_GROUPS, *others)


def _check_fields(results: Sequence[Result], by: Sequence[str]) -> None:
    known = dict.fromkeys(name for result in results for name in result.facts)
    for name in by:
        if name not in known:
            raise UserError(
                f"--by {name}: no result has such a field. Choose from: {', '.join(known)}."
            )


def _predictions(results: Sequence[Result]) -> tuple[list[np.ndarray | None], list[str]]:
    predictions: list[np.ndarray | None] = []
    warnings: list[str] = []
    for result in results:
        try:
            predictions.append(result.load_predictions())
        except (UserError, ValueError) as error:
            predictions.append(None)
            warnings.append(f"Predictions of {result.name} are left out: {error}")
    return predictions, warnings


def _grouped(
    results: Sequence[Result], members: Sequence[int], fields: dict[str, tuple[str, ...]]
) -> list[tuple[dict[str, Any], list[int]]]:
    groups: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for i in members:
        values = {name: results[i].facts.get(name) for name in fields[results[i].kind]}
        groups.setdefault(str(values), (values, []))[1].append(i)
    return list(groups.values())


def _group_pairs(
    results: Sequence[Result], groups: Sequence[Group], set_of: dict[int, int]
) -> list[GroupPair]:
    by_sets: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        if len(group.pool.members) > 1:
            by_sets[group.sets].append(position)
    candidates = chain.from_iterable(combinations(found, 2) for found in by_sets.values())
    pairs: list[GroupPair] = []
    for a, b in islice(candidates, MAX_PAIRS):
        pools = groups[a].pool, groups[b].pool
        last = min(p.spread.num_epochs for p in pools) - 1
        first, second = (
            {i: float(results[i].curves.test_accuracy[last]) for i in p.members} for p in pools
        )
        # Sets that seeds alone tell apart pair the groups: what a seed does cancels.
        sets = groups[a].sets
        if len(sets) > 1 and len({results[i].seed for i in first}) == len(sets):
            one, other = _by_set(first, set_of), _by_set(second, set_of)
            apart = [difference(mean(one[number]), mean(other[number])) for number in sets]
            found, between = mean(apart), paired_equivalence(apart)
        else:
            one, other = list(first.values()), list(second.values())
            found, between = mean(one) - mean(other), equivalence(one, other)
        pairs.append(
            GroupPair(groups=(a, b), difference=difference(found, 0.0), equivalence=between)
        )
    return pairs


def _by_set(final: dict[int, float], set_of: dict[int, int]) -> dict[int, list[float]]:
    by_set: dict[int, list[float]] = defaultdict(list)
    for i, accuracy in final.items():
        by_set[set_of[i]].append(accuracy)
    return by_set


def _choose_pairs(
    results: Sequence[Result],
    members: Sequence[int],
    set_of: dict[int, int],
    pools: Sequence[Pool],
) -> tuple[int, list[tuple[int, int]]]:
    """Return the number of comparable pairs (of all, if there is none), and those to compare."""
    sizes = Counter(set_of[i] for i in members).values()
    within = sum(math.comb(size, 2) for size in sizes)
    num_pairs = within or math.comb(len(members), 2)
    if num_pairs <= MAX_PAIRS:
        pairs = combinations(members, 2)
        return num_pairs, [p for p in pairs if not within or set_of[p[0]] == set_of[p[1]]]
    extreme: dict[tuple[int, int], None] = {}
    for p in sorted(pools, key=lambda p: -p.spread.max_difference)[:MAX_PAIRS]:
        last = p.spread.num_epochs - 1
        order = sorted(p.members, key=lambda i: (results[i].curves.test_accuracy[last], i))
        farthest = min(order[0], order[-1]), max(order[0], order[-1])
        extreme |= dict.fromkeys([farthest, *(sign.pair for sign in p.signs if sign.pair)])
    return num_pairs, list(extreme)
