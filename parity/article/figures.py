"""The figures that the article publishes, from its result files, by its own definitions.

The headline group takes `deterministic_` files alone and pools their runs, whatever the device;
the impact of a setting is a plain mean, the other settings not held fixed. What these figures can
and cannot show is for `parity.audit` to say.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np

from parity.article.files import DEVICES
from parity.curves import mean, mean_curve, pearson, population_std
from parity.results import Result
from parity.verdict import Pool, pool

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

HEADLINE = "seed_42_tf32_False_amp_False_w0"
"""Label of the group on which the article's verdict rests."""

FACTORS = ("tf32", "bf16", "amp", "workers", "benchmark", "deterministic")
"""Settings whose impact is published for each device."""

HEATMAP = ("tf32", "amp", "workers")
"""Settings whose values together make a column of the heatmap."""


class Pooled(NamedTuple):
    """Runs taken together under one name."""

    name: str
    """A label of the article, or a device."""
    pool: Pool


class DevicePair(NamedTuple):
    """Two devices in the headline group."""

    first: str
    second: str
    correlation: float | None
    """Pearson's r between their mean test-accuracy curves."""


class Cell(NamedTuple):
    """Final test accuracy of the runs on one device with one value of a setting."""

    device: str
    factor: str
    value: Any
    """For several settings together, a tuple."""
    num_runs: int
    mean: float
    """Percent."""
    std: float
    """The population's, pp."""


class OptimizerMean(NamedTuple):
    """One optimizer over the devices."""

    optimizer: str
    mean: float
    """Plain mean of the devices' means, percent."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the article publishes. Empty where the files it needs are not among the results."""

    headline: Pooled | None
    """All runs of the headline group."""
    devices: tuple[Pooled, ...]
    """Those of each device; convergence and stability are of the device's mean curve."""
    device_pairs: tuple[DevicePair, ...]
    impacts: tuple[Cell, ...]
    """By device and value of one of `FACTORS`, over all `deterministic_` files."""
    heatmap: tuple[Cell, ...]
    """By device and the values of `HEATMAP`, over all `deterministic_` files."""
    optimizers: tuple[Cell, ...]
    """By device and optimizer, over all `optimizer_` files."""
    optimizer_means: tuple[OptimizerMean, ...]
    pooled: tuple[Pooled, ...]
    """By label, over all files of every kind and optimizer."""


def figures(results: Sequence[Result], *, threshold: float) -> Figures | None:
    """Return the article's figures, or None where no result is a file of the article.

    Args:
        results: Results of any kind; finished files of the article are used.
        threshold: Test accuracy that counts as reached, percent; the article's is 70.
    """
    files = [i for i, r in enumerate(results) if r.kind == "article" and r.finished]
    if not files:
        return None
    files.sort(key=lambda i: _device_order(results[i].platform))

    def of_kind(kind: str) -> list[int]:
        return [i for i in files if results[i].configuration["file_kind"] == kind]

    def label(i: int) -> str:
        return results[i].configuration["label"]

    def pooled(name: str, members: Sequence[int]) -> Pooled:
        nothing = [None] * len(results)
        return Pooled(name, pool(results, members, nothing, comparable=False, threshold=threshold))

    tests = of_kind("deterministic")
    headline = [i for i in tests if label(i) == HEADLINE]
    by_device = _grouped(headline, lambda i: results[i].platform)
    optimizers = _cells(results, of_kind("optimizer"), ("optimizer",))
    return Figures(
        headline=pooled(HEADLINE, headline) if headline else None,
        devices=tuple(pooled(device, members) for device, members in by_device.items()),
        device_pairs=tuple(_device_pairs(results, by_device)),
        impacts=tuple(cell for name in FACTORS for cell in _cells(results, tests, (name,))),
        heatmap=tuple(_cells(results, tests, HEATMAP)),
        optimizers=tuple(optimizers),
        optimizer_means=tuple(
            OptimizerMean(name, mean([cell.mean for cell in cells]))
            for name, cells in _grouped(optimizers, lambda cell: cell.value).items()
        ),
        pooled=tuple(pooled(n, members) for n, members in sorted(_grouped(files, label).items())),
    )


def _device_order(device: str) -> int:
    return DEVICES.index(device) if device in DEVICES else len(DEVICES)


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def _device_pairs(results: Sequence[Result], by_device: dict[str, list[int]]) -> list[DevicePair]:
    every = [results[i].curves.test_accuracy for members in by_device.values() for i in members]
    num_epochs = min(map(len, every), default=0)
    curves = {
        device: mean_curve(
            np.stack([results[i].curves.test_accuracy[:num_epochs] for i in members])
        )
        for device, members in by_device.items()
    }
    return [DevicePair(a, b, pearson(curves[a], curves[b])) for a, b in combinations(curves, 2)]


def _cells(
    results: Sequence[Result], members: Sequence[int], factors: tuple[str, ...]
) -> list[Cell]:
    def place(i: int) -> tuple[str, Any]:
        values = tuple(results[i].facts[name] for name in factors)
        return results[i].platform, values[0] if len(factors) == 1 else values

    cells: list[Cell] = []
    for (device, value), found in _grouped(members, place).items():
        final = [float(results[i].curves.test_accuracy[-1]) for i in found]
        cells.append(
            Cell(device, ", ".join(factors), value, len(final), mean(final), population_std(final))
        )
    return cells
