"""The article's published figures, as compact tables: devices are rows, or columns."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from parity.article.figures import HEATMAP, Cell, Figures
from parity.comparison import Comparison
from parity.tables.notation import epoch_in_words, figure, heading, narrow_table

SWITCH = {True: "on", False: "off", None: "?"}


def article(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the figures that the article publishes, where its files are compared."""
    figures = comparison.article
    if figures is None:
        return
    if figures.headline or figures.heatmap or figures.optimizers:
        yield heading("The article's figures, by its own definitions")
    yield from _headline(figures, comparison.threshold)
    yield from _correlations_and_optimizers(figures)
    yield from _settings(figures)
    yield from _pooled(figures)


def _headline(figures: Figures, threshold: float) -> Iterator[RenderableType]:
    if figures.headline is None:
        return
    rows = narrow_table(
        *("headline group", ">n", ">mean, %", ">std, pp", ">min", ">max", ">max diff", ">mean r"),
        *(f">≥{threshold:g} % at", ">stability, pp"),
    )
    for name, pool in (*figures.devices, ("all", figures.headline.pool)):
        spread = pool.spread
        rows.add_row(
            name,
            str(spread.num_runs),
            figure(spread.mean_accuracy, 4),
            figure(spread.std_accuracy, 4),
            figure(spread.min_accuracy, 2),
            figure(spread.max_accuracy, 2),
            figure(spread.max_difference, 2),
            figure(spread.correlations.mean, 6, "-"),
            epoch_in_words(spread.threshold_epoch),
            figure(spread.stability, 3),
        )
    yield rows
    pool = figures.headline.pool
    if pool.category:
        yield f"Headline group ({figures.headline.name}): {pool.category}."


def _correlations_and_optimizers(figures: Figures) -> Iterator[RenderableType]:
    devices = [device.name for device in figures.devices]
    optimizers = [entry.optimizer for entry in figures.optimizer_means]
    names = devices or list(dict.fromkeys(cell.device for cell in figures.optimizers))
    if len(names) < 2:
        return
    correlation = {
        (a, b): r for p in figures.device_pairs for a, b, r in (p, (p.second, p.first, p[2]))
    }
    accuracy = {(cell.device, cell.value): cell.mean for cell in figures.optimizers}
    rows = narrow_table(
        "r of mean curves" if devices else "",
        *(f">{name}" for name in devices),
        *(f">{name}, %" for name in optimizers),
    )
    for name in names:
        rows.add_row(
            name,
            *(figure(correlation.get((name, other)), 4, "-") for other in devices),
            *(figure(accuracy.get((name, optimizer)), 2, "-") for optimizer in optimizers),
        )
    if optimizers:
        means = [figure(entry.mean, 2) for entry in figures.optimizer_means]
        rows.add_row("mean", *([""] * len(devices)), *means)
    yield rows


def _settings(figures: Figures) -> Iterator[RenderableType]:
    """Yield the impact of single settings and the heatmap: a row a value, a column a device."""
    cells = [*figures.impacts, *figures.heatmap]
    if not cells:
        return
    devices = list(dict.fromkeys(cell.device for cell in cells))
    rows = narrow_table("mean ± std / n", *(f">{device}" for device in devices))
    for column in rows.columns:
        column.no_wrap = True
    factors = dict.fromkeys(cell.factor for cell in cells)
    for factor in factors:
        found = [cell for cell in cells if cell.factor == factor]
        if len({cell.value for cell in found}) == 1:
            continue
        if factor == ", ".join(HEATMAP):
            rows.add_section()
        for value in sorted({cell.value for cell in found}, key=str):
            at = {cell.device: cell for cell in found if cell.value == value}
            rows.add_row(_value(factor, value), *(_cell(at.get(device)) for device in devices))
    yield rows
    yield (
        "Over all deterministic_ files, plain means: the other settings are not held fixed. The "
        f"last rows are the heatmap's: {', '.join(HEATMAP)}."
    )


def _value(factor: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(v) if type(v) is int else SWITCH[v] for v in value)
    name = factor.replace("deterministic", "determin.")
    return f"{name} {value if type(value) is int else SWITCH[value]}"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    # One run has no spread: the article's 0.0 would look like perfect agreement.
    spread = f"±{cell.std:.2f}".replace("0.", ".") if cell.num_runs > 1 else ""
    return f"{cell.mean:.2f}{spread}/{cell.num_runs}"


def _pooled(figures: Figures) -> Iterator[RenderableType]:
    several = [entry for entry in figures.pooled if entry.pool.spread.num_runs > 1]
    if not several:
        return
    rows = narrow_table(
        *("all files, by label", ">n", ">mean, %", ">std, pp", ">max\ndiff", ">mean r", "category")
    )
    for column in rows.columns:
        column.no_wrap = True
    for name, pool in several:
        spread = pool.spread
        rows.add_row(
            name,
            str(spread.num_runs),
            figure(spread.mean_accuracy, 4),
            figure(spread.std_accuracy, 4),
            figure(spread.max_difference, 2),
            figure(spread.correlations.mean, 6, "-"),
            pool.category or "-",
        )
    yield rows
