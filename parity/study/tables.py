"""A study as tables: its plan, what is not applicable and why, and how far it has come."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from parity.console import table
from parity.progress import duration
from parity.study.folder import State, Study
from parity.study.planning import PlannedRun

MAX_ROWS = 100
"""Rows of a table for people; there are as many runs as a design has."""


def plan_tables(study: Study, runs: Sequence[PlannedRun]) -> Iterator[RenderableType]:
    """Yield what a study would do: the devices, the runs alike in one row, and what is left out."""
    yield from heading(study, runs)
    groups: dict[tuple[Any, ...], list[PlannedRun]] = defaultdict(list)
    varying = [name for name in _varying(runs) if name != "seed"]
    for run in runs:
        if run.config is not None:
            groups[run.group, run.framework, str(run.place), *_levels(run, varying)].append(run)
    if groups:
        rows = table("group", "framework", "device", *varying, "seed", ">runs")
        for cells, alike in list(groups.items())[:MAX_ROWS]:
            seeds = dict.fromkeys(str(run.config.seed) for run in alike if run.config)
            rows.add_row(*cells, ", ".join(seeds), str(len(alike)))
        yield rows
        if len(groups) > MAX_ROWS:
            yield f"and {len(groups) - MAX_ROWS:,} more rows"
    yield from not_applicable(runs)


def heading(study: Study, runs: Sequence[PlannedRun]) -> Iterator[RenderableType]:
    """Yield what the study is, what all its runs share, and which device stands for which."""
    design = study.design
    yield f"{design.name}: {design.about}" if design.about else design.name
    possible = [run for run in runs if run.config is not None]
    yield f"{len(runs):,} runs, {len(possible):,} applicable."
    if possible:
        said = [run.config.to_json() for run in possible if run.config]
        shown = ("dataset", "train_size", "test_size", "epochs", "batch_size", "lr")
        alike = [n for n in shown if len({values[n] for values in said}) == 1 and said[0][n]]
        yield f"All: {', '.join(f'{name} {said[0][name]}' for name in alike)}."
    stand_ins = {run.stands_for: str(run.place) for run in runs}
    if any(name != place for name, place in stand_ins.items()):
        pairs = [f"{place} for {name}" for name, place in stand_ins.items() if name != place]
        yield f"Devices: {', '.join(pairs)}."


def not_applicable(runs: Sequence[PlannedRun]) -> Iterator[RenderableType]:
    """Yield the reasons why runs are left out, each with its number of runs by group."""
    left_out = [run for run in runs if run.reason is not None]
    if not left_out:
        return
    rows = table(">runs", "of", "not applicable, because")
    for reason, count in Counter(run.reason for run in left_out).most_common():
        groups = dict.fromkeys(run.group for run in left_out if run.reason == reason)
        rows.add_row(str(count), ", ".join(groups), reason)
    yield rows


def status_tables(
    study: Study, runs: Sequence[PlannedRun], states: Sequence[State], *, now: float
) -> Iterator[RenderableType]:
    """Yield how far each run of a study has come, and why those that failed did.

    Args:
        study: The study.
        runs: Its plan.
        states: Their states, in the same order.
        now: Seconds since 1970.
    """
    yield from heading(study, runs)
    counts = Counter(state.status for state in states)
    yield ", ".join(f"{count:,} {status}" for status, count in counts.most_common()) + "."
    known = [(r, s) for r, s in zip(runs, states, strict=True) if s.status != "not applicable"]
    # What one wants to see comes first where not all is shown.
    order = ("running", "failed", "waiting", "finished")
    shown = known
    if len(known) > MAX_ROWS:
        shown = sorted(known, key=lambda pair: order.index(pair[1].status))[:MAX_ROWS]
    varying = _varying(runs)
    rows = table("framework", "device", *varying, ">repeat", "status", ">epochs", ">time")
    for run, state in shown:
        assert run.config is not None
        epochs = f"{state.epochs}/{run.config.epochs}"
        cells = (run.framework, str(run.place), *_levels(run, varying), str(run.repeat))
        rows.add_row(*cells, state.status, epochs, _time(state, now))
    if shown:
        yield rows
    if len(shown) < len(known):
        yield f"and {len(known) - len(shown):,} more runs"
    for run, state in known:
        if state.status == "failed" and state.attempt is not None:
            yield f"FAILED  {run}: {run.folder}"
            yield from (f"  | {line}" for line in state.attempt.last_lines)
    yield from not_applicable(runs)


def _time(state: State, now: float) -> str:
    """Return the time spent on epochs, and while it runs that since its start."""
    if state.status == "running" and state.attempt is not None:
        return f"since {duration(max(now - state.attempt.began, 0.0))}"
    return duration(state.seconds) if state.epochs else ""


def _varying(runs: Sequence[PlannedRun]) -> list[str]:
    """Return the settings in which applicable runs differ."""
    settings = [_said(run) for run in runs if run.config is not None]
    names = dict.fromkeys(name for values in settings for name in values)
    return [n for n in names if len({str(values.get(n)) for values in settings}) > 1]


def _levels(run: PlannedRun, names: Sequence[str]) -> list[str]:
    said = _said(run)
    return ["" if said.get(name) is None else str(said[name]) for name in names]


def _said(run: PlannedRun) -> Mapping[str, Any]:
    """Return the configuration of a run but its device, which has a column of its own."""
    assert run.config is not None
    return {n: v for n, v in run.config.to_json().items() if n != "device"}
