"""Groups: their accuracies, how far their runs lie apart, and which groups are equivalent."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from parity.comparison import Comparison, Group, GroupPair
from parity.results import Result
from parity.tables.notation import (
    MAX_ROWS,
    MAX_VALUES,
    SIGNS,
    UNDEFINED,
    epoch_in_words,
    figure,
    heading,
    left_out,
    letters,
    narrow_table,
    short,
)


def _members(comparison: Comparison, group: Group) -> list[Result]:
    return [comparison.results[i] for i in group.members]


def groups(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the accuracies of the groups, how far their runs lie apart, and equivalences."""
    numbered = list(enumerate(comparison.groups))
    if not numbered:
        yield "\nNo run is finished: there are no groups and no verdict yet."
        return
    for fields in dict.fromkeys(comparison.by.values()):
        alike = [(i, group) for i, group in numbered if tuple(group.values) == fields]
        if alike:
            yield heading(f"Groups by {', '.join(fields)}")
            yield "Final test accuracy in %; std is the population's (ddof 0), in pp."
            epochs = {len(r.curves) for _, g in alike for r in _members(comparison, g)}
            if len(epochs) > 1:
                yield "Where a group's runs differ in length, that of their last common epoch."
            yield from _group_accuracies(fields, alike)
    several = [(i, group) for i, group in numbered if group.pool.spread.num_runs > 1]
    if several:
        yield from _group_agreement(comparison, several)


def _group_accuracies(
    fields: Sequence[str], groups: Sequence[tuple[int, Group]]
) -> Iterator[RenderableType]:
    varying = [name for name in fields if len({str(g.values[name]) for _, g in groups}) > 1]
    shown = varying or fields
    copies = any(g.num_distinct < len(g.members) for _, g in groups)
    rows = narrow_table(
        "", *shown, ">n", *([">distinct"] if copies else []), ">mean", ">std", ">min", ">max"
    )
    for position, group in groups[:MAX_ROWS]:
        figures = group.pool.spread
        rows.add_row(
            letters(position),
            *(short(group.values[name], 32) for name in shown),
            str(len(group.members)),
            *([str(group.num_distinct)] if copies else []),
            figure(figures.mean_accuracy, 4),
            figure(figures.std_accuracy, 4) if figures.num_runs > 1 else "-",
            figure(figures.min_accuracy, 2),
            figure(figures.max_accuracy, 2),
        )
    yield rows
    yield from left_out(MAX_ROWS, len(groups), "groups")
    if copies:
        yield "Distinct: copies, which agree in every bit, count once in all figures of a group."


def _group_agreement(
    comparison: Comparison, several: Sequence[tuple[int, Group]]
) -> Iterator[RenderableType]:
    rows = narrow_table(
        *("", ">max diff,\npp", ">mean r", ">epoch-1\nloss gap,\nnats"),
        *(f">≥{comparison.threshold:g} % at", ">stability,\npp", "category", "danger signs"),
    )
    for position, group in several[:MAX_ROWS]:
        figures, pool = group.pool.spread, group.pool
        rows.add_row(
            letters(position),
            figure(figures.max_difference, 2),
            figure(figures.correlations.mean, 6, UNDEFINED),
            figure(figures.first_loss_gap, 4),
            epoch_in_words(figures.threshold_epoch),
            figure(figures.stability, 3),
            pool.category or UNDEFINED,
            ", ".join(SIGNS[sign.name] for sign in pool.signs if sign.present) or "none",
        )
    for column in rows.columns:
        column.no_wrap = True
    yield rows
    yield from left_out(MAX_ROWS, len(several), "groups")
    yield from _equivalences(comparison)


def _equivalences(comparison: Comparison) -> Iterator[RenderableType]:
    known = [pair for pair in comparison.group_pairs if pair.equivalence]
    if not known:
        return
    shown = known
    if len(known) > MAX_VALUES:
        # Against one group each, the largest, rather than each against each.
        sizes = {i: group.pool.spread.num_runs for i, group in enumerate(comparison.groups)}
        largest = max((i for pair in known for i in pair.groups), key=lambda i: (sizes[i], -i))
        shown = [pair for pair in known if largest in pair.groups][:MAX_ROWS]
    rows = narrow_table("groups", ">difference, pp", ">90 % CI, pp", ">equivalent within, pp")
    for pair in shown:
        rows.add_row(*_equivalence_cells(pair))
    yield rows
    yield from left_out(len(shown), len(known), "pairs of groups")
    kinds = {pair.equivalence.paired for pair in known if pair.equivalence}
    ways = {True: "paired by seed", False: "Welch's, runs taken as independent"}
    yield (
        "Equivalent within: the smallest margin that two one-sided t-tests at 5 % support, "
        f"{'; or '.join(ways[kind] for kind in sorted(kinds, reverse=True))}."
    )


def _equivalence_cells(pair: GroupPair) -> list[str]:
    assert pair.equivalence is not None
    a, b = (letters(position) for position in pair.groups)
    return [
        f"{a} - {b}",
        f"{pair.difference:+.3f}",
        f"[{pair.equivalence.low:+.3f}, {pair.equivalence.high:+.3f}]",
        f"±{pair.equivalence.margin:.3f}",
    ]
