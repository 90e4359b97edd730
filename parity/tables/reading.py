"""What was read, and the loud warnings: runs that must not be compared."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from parity.comparison import Comparison
from parity.console import WIDTH
from parity.curves import epoch_reaching, population_std
from parity.provenance import Obstacle
from parity.results import FIELDS, Result
from parity.tables.notation import (
    MAX_ROWS,
    MAX_VALUES,
    epoch_in_words,
    left_out,
    letters,
    narrow_table,
    runs,
    short,
    value_in_words,
    values_in_words,
)

MAX_SAMPLE = 8
"""Results shown where there are more than a table's rows: groups say more then."""

OBSTACLES = {
    "data": "OTHER DATA: images, labels or the choice of them differ",
    "stream": "ANOTHER STREAM: batches, crops, flips or dropout masks differ",
    "initial_weights": "OTHER INITIAL WEIGHTS",
    "seed": "OTHER SEEDS: initial weights and streams differ",
    "workers": "ANOTHER STREAM: loader workers draw crops and flips from other generators",
}


def what_was_read(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the results, one a row, and what became of the unfinished ones."""
    results = comparison.results
    states = Counter(result.status for result in results)
    kinds = Counter("runs" if result.kind == "run" else "article's files" for result in results)
    yield (
        f"Read {', '.join(f'{kind}: {count:,}' for kind, count in kinds.items())} "
        f"({', '.join(f'{count:,} {state}' for state, count in states.items())})."
    )
    columns = [name for name in FIELDS if name != "kind"]
    varying = [name for name in columns if len({result.facts[name] for result in results}) > 1]
    shared = [f"{name} {short(results[0].facts[name])}" for name in columns if name not in varying]
    epochs = {len(result.curves) for result in results}
    if len(epochs) == 1:
        shared.append(f"epochs {len(results[0].curves)}")
    if shared:
        yield f"{'All' if len(results) > 1 else 'The run'}: {', '.join(shared)}."
    yield from _result_rows(comparison, varying, epochs=len(epochs) > 1)
    failures = [(i, result.failure) for i, result in enumerate(results) if result.failure]
    for i, failure in failures[:MAX_VALUES]:
        yield f"Run {i + 1} failed: {failure}"
    yield from left_out(MAX_VALUES, len(failures), "failures")
    if states["finished"] < len(results):
        yield "Unfinished runs are left out of groups and verdict; pairs take the epochs they have."
    lengths = {len(result.curves) for result in results if result.finished}
    if len(lengths) > 1:
        yield (
            f"Finished runs have {min(lengths)} to {max(lengths)} epochs; what is taken together "
            "is compared over the epochs that all have, at the last of them."
        )


def _result_rows(
    comparison: Comparison, varying: Sequence[str], *, epochs: bool
) -> Iterator[RenderableType]:
    results = comparison.results
    shown = results if len(results) <= MAX_ROWS else results[:MAX_SAMPLE]
    headers = [*varying, *([">epochs"] if epochs else []), ">test acc, %"]
    headers += [f">≥{comparison.threshold:g} % at", ">stability, pp"]
    cells = [_result_cells(result, varying, epochs, comparison) for result in shown]
    columns = zip(headers, *cells, strict=True)
    taken = 6 + sum(max(len(cell.lstrip(">")) for cell in column) + 2 for column in columns)
    rows = narrow_table(">", "name", *headers)
    for number, (result, row) in enumerate(zip(shown, cells, strict=True), start=1):
        rows.add_row(str(number), short(result.name, max(20, WIDTH - taken)), *row)
    yield rows
    yield from left_out(len(shown), len(results), "results")


def _result_cells(
    result: Result, varying: Sequence[str], epochs: bool, comparison: Comparison
) -> list[str]:
    curve = result.curves.test_accuracy
    cells = [short(result.facts[name], 24) for name in varying]
    cells += [str(len(curve))] if epochs else []
    if not len(curve):
        return [*cells, "", "", ""]
    reached = epoch_reaching(curve, comparison.threshold)
    return [*cells, f"{curve[-1]:.2f}", epoch_in_words(reached), f"{population_std(curve):.3f}"]


def warnings(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield what must not be compared, loudly, and what cannot be checked."""
    loud = [obstacle for obstacle in comparison.obstacles if not obstacle.by_seed]
    for obstacle in loud:
        yield Text(f"\nNOT COMPARABLE. {OBSTACLES[obstacle.field]}.", style="bold red")
        for value in obstacle.values[:MAX_VALUES]:
            yield f"  {obstacle.field} {value_in_words(value)}: {runs(value.members)}"
        yield from left_out(MAX_VALUES, len(obstacle.values), "values")
        yield f"  {_cause(obstacle)}"
    if loud:
        yield from _sets(comparison)
    elif comparison.obstacles:
        yield (
            f"\n{len({result.seed for result in comparison.results}):,} seeds: each has its own "
            "stream and initial weights by design, so that bits and pairs compare within a seed, "
            "groups over the seeds."
        )
    if "article" in comparison.by:
        apart = (
            " Between them and runs nothing is compared bit by bit."
            if len(comparison.by) > 1
            else ""
        )
        yield (
            "\nThe article's files record neither data nor stream nor initial weights: whether "
            f"these agree cannot be checked from the files.{apart}"
        )
    for warning in comparison.warnings[:MAX_VALUES]:
        yield Text(f"\n{warning}", style="bold red")
    yield from left_out(MAX_VALUES, len(comparison.warnings), "warnings")


def _sets(comparison: Comparison) -> Iterator[RenderableType]:
    yield "Compare only within a set:"
    groups = list(enumerate(comparison.groups))
    for number, members in enumerate(comparison.sets[:MAX_VALUES]):
        inside = [letters(position) for position, group in groups if group.sets == (number,)]
        named = f" (groups {', '.join(inside[:MAX_ROWS])})" if inside else ""
        yield f"  set {number + 1}: {runs(members)}{named}"
    yield from left_out(MAX_VALUES, len(comparison.sets), "sets")
    mixed = [letters(position) for position, group in groups if len(group.sets) > 1]
    if mixed:
        yield f"  Groups that mix sets: {', '.join(mixed[:MAX_ROWS])}"


def _cause(obstacle: Obstacle) -> str:
    if obstacle.field in ("seed", "workers"):
        return "The files do not record the stream; this is judged by the setting."
    if not obstacle.causes:
        return "No setting explains it: the files or the version of the code differ."
    causes = "; ".join(f"{cause.field} {values_in_words(cause)}" for cause in obstacle.causes)
    return f"Settings that can explain it: {causes}."
