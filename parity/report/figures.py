"""The report's figures: which there are for a comparison, with their numbers."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from parity.comparison import Comparison
from parity.report import plots, series
from parity.report.series import MAX_LINES, METRICS, Rows
from parity.tables.crossed import MAX_SHOWN


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure."""

    name: str
    """Of its files, without a suffix."""
    title: str
    caption: str
    rows: Rows
    """The numbers plotted."""
    figure: Figure

    @cached_property
    def svg(self) -> bytes:
        """The figure as SVG, without a background: its greys are readable on light and on dark."""
        return self._saved(format="svg", transparent=True, metadata={"Date": None})

    @cached_property
    def png(self) -> bytes:
        """The figure as PNG, on white."""
        return self._saved(format="png", facecolor="white")

    def _saved(self, **how: Any) -> bytes:
        buffer = io.BytesIO()
        with rc_context(plots.STYLE):
            self.figure.savefig(buffer, **how)
        return buffer.getvalue()


MAX_CONFIGURATIONS = 24
"""Rows of the heatmap, those with the most runs."""


def draw(comparison: Comparison) -> Iterator[Drawn]:
    """Yield the figures for which there are runs."""
    found = series.configurations(comparison)
    if not found:
        return
    palette = plots.Palette([d for c in found for d in c.devices()])
    main = found[0]
    few = len(main.runs) <= MAX_LINES
    of = f"{len(main.runs):,} runs: {main.name}."
    rows = series.accuracies(main)
    figure = plots.figure(1, 1, height=1.2 + 0.4 * len(main.devices()))
    plots.accuracy(figure.axes[0], rows, palette)
    yield Drawn(
        name="accuracy",
        title="Final accuracy by device",
        caption=f"{of} {'Point: a run; s' if few else 'S'}troke: mean of a device's runs; "
        "bar: their range.",
        rows=rows,
        figure=figure,
    )
    rows = series.trajectories(main)
    figure = plots.figure(2, 2)
    for axes, metric in zip(figure.axes, METRICS, strict=True):
        plots.trajectory(axes, rows, metric, palette)
    plots.legend(figure, figure.axes[0])
    yield Drawn(
        name="trajectories",
        title="Trajectories",
        caption=f"{of} Thick: mean of a device's runs; band: their range"
        f"{'; thin: single runs' if few else ''}.",
        rows=rows,
        figure=figure,
    )
    yield from _parts(comparison)
    yield from _effects(comparison)
    if len(found) > 1:
        rows = series.heatmap(found[:MAX_CONFIGURATIONS])
        figure = plots.figure(1, 1, height=1.6 + 0.32 * len(found[:MAX_CONFIGURATIONS]))
        plots.heatmap(figure, figure.axes[0], rows)
        yield Drawn(
            name="heatmap",
            title="Device and configuration",
            caption="Mean final test accuracy; empty where there is no run.",
            rows=rows,
            figure=figure,
        )
    yield from _optimizers(found, palette)
    rows = series.repeats(main)
    if rows:
        figure = plots.figure(1, 1)
        plots.deviations(figure.axes[0], rows, palette)
        plots.legend(figure, figure.axes[0])
        yield Drawn(
            name="repeats",
            title="Repeated runs",
            caption=f"{of} {'Each run' if few else 'The lowest and the highest'}"
            "'s test accuracy less the mean of its device's runs.",
            rows=rows,
            figure=figure,
        )


def _effects(comparison: Comparison) -> Iterator[Drawn]:
    rows = series.contrasts(comparison)
    if rows:
        figure = plots.figure(1, 1, height=1.2 + 0.32 * len(rows))
        plots.effects(figure.axes[0], rows)
        plots.legend(figure, figure.axes[0])
        yield Drawn(
            name="effects",
            title="What one change does",
            caption="Pairs of runs that differ in one thing alone. Typical: root mean square.",
            rows=rows,
            figure=figure,
        )


def _parts(comparison: Comparison) -> Iterator[Drawn]:
    rows = series.parts(comparison)
    names = list(dict.fromkeys(row["configuration"] for row in rows))[:MAX_SHOWN]
    outcomes = list(dict.fromkeys(row["outcome"] for row in rows))
    if not rows:
        return
    figure = plots.figure(len(names), len(outcomes), height=2.4)
    for axes, (name, outcome) in zip(figure.axes, product(names, outcomes), strict=True):
        chosen = [r for r in rows if (r["configuration"], r["outcome"]) == (name, outcome)]
        if not chosen:
            axes.set_axis_off()
            continue
        plots.parts(axes, chosen, PARTS[outcome])
        if outcome == outcomes[0]:
            axes.set_title(name, color=plots.GREY)
        else:
            axes.set_yticklabels([])
    yield Drawn(
        name="variance",
        title="Framework or hardware",
        caption="What each part adds to final accuracy and test loss (standard deviation), and to "
        "the share of test images on which two runs disagree. Line: 95 % interval.",
        rows=rows,
        figure=figure,
    )


PARTS = {
    "accuracy": "final accuracy, pp",
    "loss": "final test loss, nats",
    "predictions": "disagreement, % of images",
}
"""Axis labels."""


def _optimizers(found: list[series.Configuration], palette: plots.Palette) -> Iterator[Drawn]:
    chosen = series.optimizers(found)
    if len(chosen) < 2:
        return
    figure = plots.figure(2, len(chosen))
    rows: Rows = []
    for column, configuration in enumerate(chosen):
        name = configuration.runs[0].optimizer
        finals = series.accuracies(configuration)
        curves = series.trajectories(configuration, ["test_accuracy"])
        above, below = figure.axes[column], figure.axes[len(chosen) + column]
        plots.accuracy(above, finals, palette)
        above.set_title(name, color=plots.GREY)
        plots.trajectory(below, curves, "test_accuracy", palette)
        rows += [{"optimizer": name, "panel": "final"} | row for row in finals]
        rows += [{"optimizer": name, "panel": "trajectory"} | row for row in curves]
        if column:
            above.set_yticklabels([])
            below.set_ylabel("")
    yield Drawn(
        name="optimizers",
        title="Optimizers",
        caption="Final accuracy by device, and trajectories, of each optimizer.",
        rows=rows,
        figure=figure,
    )
