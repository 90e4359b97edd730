"""Plots: rows of numbers onto axes. Nothing is computed and no file is written here."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from parity.report.series import METRICS, Rows

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F")
"""Okabe and Ito's, without black and yellow, which vanish on dark and on light pages; two more."""

MARKERS = "osD^vP*X"
"""So that no device is told by its colour alone."""

STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "parity",
}

GREY = "#7A7A7A"
"""Of axes and text: readable on white and on dark grey."""


class Palette:
    """One colour and one marker for each device, everywhere."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._position = {device: i for i, device in enumerate(dict.fromkeys(devices))}

    def colour(self, device: str) -> str:
        """Return its colour; the ninth device has the first one again, with another marker."""
        return COLOURS[self._position[device] % len(COLOURS)]

    def marker(self, device: str) -> str:
        """Return its marker."""
        i = self._position[device]
        return MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]


def figure(rows: int, columns: int, *, width: float = 8.0, height: float = 3.2) -> Figure:
    """Return an empty figure as wide as a page, its axes in `figure.axes`, row by row."""
    with mpl.rc_context(STYLE):
        made = Figure(figsize=(width, height * rows), layout="constrained")
        made.subplots(rows, columns, squeeze=False)
    for axes in made.axes:
        axes.tick_params(colors=GREY)
        for spine in axes.spines.values():
            spine.set_color(GREY)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set_color(GREY)
    return made


def accuracy(axes: Axes, rows: Rows, palette: Palette) -> None:
    """Draw final accuracies by device: mean and range, and single runs as points."""
    devices = list(dict.fromkeys(row["device"] for row in rows))
    for place, device in enumerate(reversed(devices)):
        colour = palette.colour(device)
        whole, single = _split(rows, device)
        (row,) = whole
        axes.plot([row["min"], row["max"]], [place, place], color=colour, lw=5, alpha=0.25)
        points = [point["mean"] for points in single for point in points]
        marker = palette.marker(device)
        axes.plot(points, [place] * len(points), marker, color=colour, ms=7, alpha=0.8)
        axes.plot([row["mean"]] * 2, [place - 0.28, place + 0.28], color=colour, lw=2)
    axes.set_yticks(range(len(devices)), list(reversed(devices)))
    axes.set_ylim(-0.6, len(devices) - 0.4)
    axes.set_xlabel("final test accuracy, %")


def trajectory(axes: Axes, rows: Rows, metric: str, palette: Palette) -> None:
    """Draw a curve's mean and band for each device, and single runs as thin lines."""
    chosen = [row for row in rows if row["metric"] == metric]
    for device in dict.fromkeys(row["device"] for row in chosen):
        whole, single = _split(chosen, device)
        colour, marker = palette.colour(device), palette.marker(device)
        epochs, centre, low, high = _columns(whole, "epoch", "mean", "min", "max")
        axes.fill_between(epochs, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(epochs, centre, color=colour, lw=1.8, marker=marker, ms=4, label=device)
        for run in single:
            axes.plot(*_columns(run, "epoch", "mean"), color=colour, lw=0.6, alpha=0.5)
    _by_epoch(axes, METRICS[metric])


def deviations(axes: Axes, rows: Rows, palette: Palette) -> None:
    """Draw how far repeated runs are from their mean: single runs, or their range if many."""
    for device in dict.fromkeys(row["device"] for row in rows):
        whole, single = _split(rows, device)
        colour, marker = palette.colour(device), palette.marker(device)
        epochs, low, high = _columns(whole, "epoch", "min", "max")
        lines = [_columns(run, "epoch", "mean") for run in single] or [
            (epochs, low),
            (epochs, high),
        ]
        for number, line in enumerate(lines):
            label = None if number else device
            axes.plot(*line, color=colour, marker=marker, ms=4, lw=1, alpha=0.8, label=label)
    axes.axhline(0, color=GREY, lw=0.8)
    _by_epoch(axes, "from the mean, pp")


def _split(rows: Rows, device: str) -> tuple[Rows, list[Rows]]:
    """Return a device's rows of all its runs together, and those of each single run."""
    lines: dict[str, Rows] = {"": []}
    for row in rows:
        if row["device"] == device:
            lines.setdefault(row["run"], []).append(row)
    return lines.pop(""), list(lines.values())


def _columns(rows: Rows, *names: str) -> tuple[list[float], ...]:
    return tuple([row[name] for row in rows] for name in names)


def _by_epoch(axes: Axes, label: str) -> None:
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def heatmap(figure: Figure, axes: Axes, rows: Rows) -> None:
    """Draw mean final accuracy by device and configuration, the number in every cell."""
    devices = list(dict.fromkeys(row["device"] for row in rows))
    names = list(dict.fromkeys(row["configuration"] for row in rows))
    cells: Mapping[tuple[str, str], float] = {
        (row["device"], row["configuration"]): row["mean"] for row in rows
    }
    grid = np.array([[cells.get((d, n), np.nan) for d in devices] for n in names])
    image = axes.imshow(grid, aspect="auto", cmap="cividis")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for i in range(len(names)):
        for j in range(len(devices)):
            if not np.isnan(grid[i, j]):
                colour = "white" if grid[i, j] <= middle else "black"
                axes.text(j, i, f"{grid[i, j]:.2f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(devices)), devices, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.grid(visible=False)
    bar = figure.colorbar(image, ax=axes)
    bar.set_label("accuracy, %", color=GREY)
    bar.ax.tick_params(colors=GREY)


def effects(axes: Axes, rows: Rows) -> None:
    """Draw what differing in one thing alone does to the final accuracy: typical and largest."""
    names = [f"{r['differs']}{', ' + r['optimizer'] if r['optimizer'] else ''}" for r in rows]
    places = range(len(rows))
    axes.barh(places, [r["typical"] for r in rows], color=COLOURS[0], alpha=0.8, label="typical")
    axes.plot([r["largest"] for r in rows], places, "|", color=COLOURS[1], ms=12, label="largest")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel("difference in final test accuracy, pp")


def parts(axes: Axes, rows: Rows, label: str) -> None:
    """Draw the parts of a variance as bars, with intervals; what is exactly zero says so."""
    for place, row in enumerate(rows):
        axes.barh(place, row["value"], color=COLOURS[0], alpha=0.8)
        if row["high"]:
            axes.plot([row["low"], row["high"]], [place, place], color=COLOURS[1], lw=2.5)
        elif row["high"] == 0:
            axes.text(0, place, " exactly 0", va="center", color=GREY)
    axes.set_yticks(range(len(rows)), [row["part"] for row in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def legend(figure: Figure, axes: Axes) -> None:
    """Put the legend of one axes under the whole figure, if it has one."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(len(labels), 4),
            frameon=False,
            labelcolor=GREY,
        )
