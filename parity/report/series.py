"""What the figures show: rows of numbers, worked out from a comparison, plotted and kept as CSV."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from parity.comparison import Comparison
from parity.curves import mean, population_std
from parity.results import Result
from parity.tables.crossed import UNITS, experiment, scaled

WHERE = ("framework", "platform")
"""Fields that say on what a run computed: one device of the figures."""

METRICS = {
    "train_accuracy": "training accuracy, %",
    "test_accuracy": "test accuracy, %",
    "train_loss": "training loss, nats",
    "test_loss": "test loss, nats",
}
"""Axis labels of the curves, by their name in parity.results.Curves."""


class Run(NamedTuple):
    """One finished run as the figures see it."""

    name: str
    device: str
    optimizer: str
    curves: dict[str, np.ndarray]
    """Shape (epochs,) each, by the names of METRICS."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Runs of one configuration on several devices."""

    name: str
    """What they share, in words."""
    runs: tuple[Run, ...]

    def devices(self) -> list[str]:
        """Return the devices, in the order in which they first occur."""
        return list(dict.fromkeys(run.device for run in self.runs))

    def on(self, device: str) -> list[Run]:
        """Return the runs on a device."""
        return [run for run in self.runs if run.device == device]


def devices(comparison: Comparison) -> dict[int, str]:
    """Return the device of every result, by position: the platform, and the framework if several.

    The order is that of the results, so that a device keeps its place, and its colour, everywhere.
    """
    several = len({result.framework for result in comparison.results}) > 1
    return {
        i: f"{_NAMES.get(r.framework, r.framework)} {r.platform}" if several else r.platform
        for i, r in enumerate(comparison.results)
    }


_NAMES = {"jax": "JAX", "torch": "PyTorch"}


def configurations(comparison: Comparison) -> list[Configuration]:
    """Return the groups of the comparison, those merged that differ in the device alone.

    The one with the most runs comes first: the study's main one.
    """
    device = devices(comparison)
    merged: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for group in comparison.groups:
        shared = {name: value for name, value in group.values.items() if name not in WHERE}
        merged.setdefault(str(shared), (shared, []))[1].extend(group.members)
    varying = _varying([shared for shared, _ in merged.values()])
    found = [
        Configuration(
            name=", ".join(str(shared[name]) for name in varying if name in shared),
            runs=tuple(_run(comparison.results[i], device[i]) for i in sorted(members)),
        )
        for shared, members in merged.values()
    ]
    return sorted(found, key=lambda configuration: -len(configuration.runs))


def _varying(values: Sequence[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for each in values for name in each)
    return [n for n in names if len({str(each.get(n)) for each in values}) > 1] or list(names)


def _run(result: Result, device: str) -> Run:
    curves = {name: getattr(result.curves, name) for name in METRICS}
    return Run(result.name, device, result.optimizer, curves)


Rows = list[dict[str, Any]]
"""A table: one dictionary a row, with equal keys."""


MAX_LINES = 60
"""Runs that are shown singly; of more runs mean and range alone are."""


def accuracies(configuration: Configuration) -> Rows:
    """Return final test accuracies, percent: mean and range of each device, and single runs."""
    rows = _summary(configuration, "test_accuracy", lambda run: run.curves["test_accuracy"][-1:])
    return [row | {"epoch": "last"} for row in rows]


def trajectories(configuration: Configuration, metrics: Sequence[str] = tuple(METRICS)) -> Rows:
    """Return every curve, epoch by epoch: mean and range of each device, and single runs."""
    return [
        row
        for metric in metrics
        for row in _summary(configuration, metric, lambda run, m=metric: run.curves[m])
    ]


def repeats(configuration: Configuration) -> Rows:
    """Return how far each run's test accuracy is from the mean of its device's runs, pp.

    Devices with one run alone are left out.
    """
    centres: dict[str, list[float]] = {}
    repeated: list[Run] = []
    for device in configuration.devices():
        runs = configuration.on(device)
        if len(runs) > 1:
            curves = [run.curves["test_accuracy"] for run in runs]
            # Over the epochs that all have: zip ends with the shortest.
            centres[device] = [mean(values) for values in zip(*curves, strict=False)]
            repeated += runs

    def apart(run: Run) -> np.ndarray:
        centre = centres[run.device]
        return run.curves["test_accuracy"][: len(centre)] - centre

    return _summary(Configuration(name=configuration.name, runs=tuple(repeated)), "apart", apart)


def _summary(configuration: Configuration, metric: str, curve: Callable[[Run], np.ndarray]) -> Rows:
    """Return a curve's mean and range on each device, and the single runs if they are few.

    A row without a run is of all `runs` that the device has at this epoch, counted from 1 at the
    start of what `curve` yields.
    """
    rows: Rows = []
    single = len(configuration.runs) <= MAX_LINES
    for device in configuration.devices():
        curves = {run.name: curve(run).tolist() for run in configuration.on(device)}
        lines = {"": list(zip_longest(*curves.values()))}
        lines |= {run: [(value,) for value in values] for run, values in curves.items() if single}
        for run, line in lines.items():
            for epoch, values in enumerate(line, start=1):
                there = [value for value in values if value is not None]
                rows.append(
                    {
                        "device": device,
                        "run": run,
                        "metric": metric,
                        "epoch": epoch,
                        "runs": len(there),
                        "mean": mean(there),
                        "min": min(there),
                        "max": max(there),
                    }
                )
    return rows


def heatmap(found: Sequence[Configuration]) -> Rows:
    """Return the mean final test accuracy, percent, by device and configuration."""
    rows: Rows = []
    for configuration in found:
        for device in configuration.devices():
            finals = [float(r.curves["test_accuracy"][-1]) for r in configuration.on(device)]
            rows.append(
                {
                    "device": device,
                    "configuration": configuration.name,
                    "runs": len(finals),
                    "mean": mean(finals),
                    "std": population_std(finals),
                }
            )
    return rows


def optimizers(found: Sequence[Configuration]) -> list[Configuration]:
    """Return one configuration for each optimizer, those most alike: of the fewest runs in all.

    The article's optimizer runs are one on each device; where an optimizer has several
    configurations, that one is taken whose devices are most, and then whose runs are fewest.
    """
    best: dict[str, Configuration] = {}
    for configuration in found:
        (optimizer,) = {run.optimizer for run in configuration.runs} or {""}
        held = best.get(optimizer)
        if held is None or _rank(configuration) < _rank(held):
            best[optimizer] = configuration
    return [best[name] for name in sorted(best)]


def _rank(configuration: Configuration) -> tuple[int, int]:
    return -len(configuration.devices()), len(configuration.runs)


def contrasts(comparison: Comparison) -> Rows:
    """Return the typical and the largest effect of each thing that pairs of runs differ in, pp."""
    return [
        {
            "differs": (contrast.field or "nothing (repeats)")
            + (" (another stream)" if contrast.other_stream else ""),
            "optimizer": contrast.optimizer or "",
            "pairs": contrast.num_pairs,
            "typical": contrast.typical,
            "largest": contrast.largest,
        }
        for contrast in comparison.audit.contrasts
    ]


def parts(comparison: Comparison) -> Rows:
    """Return the parts of the variance of each configuration and outcome, with their intervals.

    Accuracy and loss as standard deviations, predictions as the share of images on which two runs
    disagree. A part that is exactly zero has an interval of zeros; where none is known it is empty.
    """
    return [
        {
            "configuration": experiment(comparison, layout),
            "outcome": measure.name,
            "unit": UNITS[measure.name],
            "part": part.name,
            "value": scaled(measure, part.variance),
            "low": None if part.low is None else scaled(measure, part.low),
            "high": None if part.high is None else scaled(measure, part.high),
            "share": part.variance / measure.total if measure.total else None,
        }
        for layout in comparison.crossed
        for measure in layout.measures
        for part in measure.parts
    ]
