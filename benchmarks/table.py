"""What the figures say, in three tables: the cases, the targets, and growth."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from benchmarks import floor
from benchmarks.measure import CASES, OURS, TEST_SHARE
from benchmarks.ruler import Spread, ratio, spread
from parity import console

ARTICLE = "article's way"
BATCH_SIZE = 128
CIFAR10_IMAGES = 50_000
GB = 1e9


class Table(NamedTuple):
    """Headers (">" in front: numbers, aligned to the right) and rows of text."""

    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]


class Target(NamedTuple):
    """What is asked for, and what was found, in one unit."""

    what: str
    limit: float
    found: Spread
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the median is within the limit."""
        return self.found.median <= self.limit


def targets(report: dict[str, Any]) -> list[Target]:
    """Return all targets, each beside what was measured."""
    steps, epochs = report["steps"], report["epochs"]

    def step(name: str) -> list[float]:
        return steps[name]["step_ms"]

    def evaluation(name: str) -> Spread:
        tests = [TEST_SHARE * seconds for seconds in epochs[name]["test_s"]]
        return ratio(tests, epochs[name]["train_s"])

    def pipeline(name: str) -> Spread:
        shares = ratio(steps[name]["batch_ms"], step(name))
        return Spread(*(100 * share for share in shares))

    train = {name: case["train_s"] for name, case in epochs.items()}
    return [
        Target(
            "torch_impl, an epoch, of the article's way",
            0.75,
            ratio(train["torch_impl"], train[ARTICLE]),
        ),
        Target("jax_impl, a step, of plain PyTorch's", 1.0, ratio(step("jax_impl"), step(ARTICLE))),
        Target(
            "torch_impl, exact, a step, of float32's",
            1.5,
            ratio(step("torch_impl exact"), step("torch_impl")),
        ),
        Target(
            "jax_impl, exact, a step, of float32's",
            2.0,
            ratio(step("jax_impl exact"), step("jax_impl")),
        ),
        *(Target(f"{name}, a batch, of a step", 5, pipeline(name), "%") for name in OURS),
        *(
            Target(f"{name}, evaluation, of training on as many images", 0.4, evaluation(name))
            for name in OURS
        ),
        Target(
            "jax_impl, start to first step, its compiled steps kept",
            8,
            spread(report["first_steps"]["jax_impl"]),
            "s",
        ),
        *(
            Target(
                f"{name}, peak memory on CIFAR-10",
                2,
                spread([report["whole_runs"][name]["peak_bytes"] / GB]),
                "GB",
            )
            for name in OURS
        ),
    ]


def cases_table(report: dict[str, Any]) -> Table:
    """Return steps, epochs and floors of all cases, and their ratios to the article's way."""
    steps, epochs = report["steps"], report["epochs"]
    turns = CIFAR10_IMAGES / report["plan"]["turn_images"]
    rows = []
    for name in CASES:
        step, epoch = steps[name]["step_ms"], epochs[name]["train_s"]
        products, traffic = floors_ms(steps[name])
        median = spread(step).median
        rows.append(
            (
                name,
                _spread(spread(step), 0),
                _spread(ratio(step, steps[ARTICLE]["step_ms"])),
                f"{products:.0f}, {traffic:.0f}",
                f"{median / max(products, traffic):.1f}",
                f"{turns * spread(epoch).median:.0f}",
                _spread(ratio(epoch, epochs[ARTICLE]["train_s"])),
            )
        )
    headers = ("case", ">step, ms", ">of article's", ">floors, ms", ">times")
    return Table((*headers, ">epoch, s", ">of article's"), rows)


def floors_ms(case: dict[str, Any]) -> tuple[float, float]:
    """Return the least time for a step's products and for its memory traffic, by rates measured."""
    products = floor.operations(BATCH_SIZE) / spread(case["gop_s"]).median
    traffic = floor.traffic_bytes(BATCH_SIZE) / spread(case["gb_s"]).median
    return products / 1e6, traffic / 1e6


def targets_table(report: dict[str, Any]) -> Table:
    """Return all targets beside what was measured."""
    rows = []
    for target in targets(report):
        unit = f" {target.unit}" if target.unit else ""
        rows.append(
            (
                target.what,
                f"{_spread(target.found)}{unit}",
                f"{target.limit:g}{unit}",
                "yes" if target.met else "no",
            )
        )
    return Table(("target", ">measured", ">at most", "met"), rows)


def growth_table(report: dict[str, Any]) -> Table:
    """Return how time grows: its exponent against images, epochs, operations and runs."""
    rows = []
    for name in OURS:
        plan = report["plan"]
        sizes = [plan["turn_images"], plan["longer_images"], plan["whole_images"]]
        seconds = [
            spread(report["epochs"][name]["train_s"]).median,
            spread(report["longer_epochs"][name]["train_s"]).median,
            report["whole_runs"][name]["train_s"],
        ]
        rows.append(_growth(f"{name}, an epoch: images", sizes, seconds))
    for name in OURS:
        total = list(accumulate(report["epochs"][name]["train_s"]))
        rows.append(_growth(f"{name}, a run: epochs", range(1, len(total) + 1), total))
    for name in OURS:
        widths = report["plan"]["widths"]
        operations = [floor.operations(BATCH_SIZE, width=width) / 1e9 for width in widths]
        cases = [report["widths"][f"{name} x {width}"] for width in widths]
        seconds = [spread(case["step_ms"]).median / 1e3 for case in cases]
        what = f"{name}, a step: operations, 10⁹ (widths {', '.join(map(str, widths))})"
        rows.append(_growth(what, operations, seconds))
    for work in ("read", "compare"):
        comparing = report["comparing"]
        seconds = [spread(case[f"{work}_s"]).median for case in comparing.values()]
        rows.append(_growth(f"parity.compare, {work}: runs", list(map(int, comparing)), seconds))
    return Table(("time against", ">from", ">to", ">seconds", ">to", ">exponent"), rows)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return b of the power law seconds = a * sizes**b that fits best; 1 is linear."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _growth(what: str, sizes: Sequence[float], seconds: Sequence[float]) -> tuple[str, ...]:
    values = (sizes[0], sizes[-1], seconds[0], seconds[-1])
    grown = f"{exponent(sizes, seconds):.2f}" if len(sizes) > 1 else ""
    return what, *map(_round, values), grown


def _round(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _spread(values: Spread, digits: int = 2) -> str:
    median, least, largest = (f"{value:.{digits}f}" for value in values)
    return median if least == largest else f"{median} ({least}-{largest})"


def notes(report: dict[str, Any]) -> list[str]:
    """Return what a reader of the tables must know."""
    machine, plan, first = report["machine"], report["plan"], report["first_steps"]
    versions = machine["versions"]
    loads = [load for pair in report["loads"].values() for load in pair]
    medians = {name: spread(times).median for name, times in first.items()}
    return [
        f"{machine['cpu']}, {machine['threads']} threads, jax {versions['jax']}, torch "
        f"{versions['torch']}, {report['images']} images, {report['date']}; load {min(loads):.1f} "
        f"to {max(loads):.1f}, these cases included.",
        f"A step: batch {BATCH_SIZE}, data ready, median (least-largest) of {plan['step_rounds']} "
        f"interleaved. An epoch, data included: {CIFAR10_IMAGES // plan['turn_images']} times the "
        f"median of {plan['epoch_rounds']} interleaved ones of {plan['turn_images']:,} images. "
        "Ratios are medians over rounds.",
        f"Floors: the least time for the {floor.operations(BATCH_SIZE) / 1e9:.1f} thousand million "
        "operations of a step's products, at the rate of a large one in the same process and type; "
        f"and for {floor.traffic_bytes(BATCH_SIZE) / 1e6:.0f} MB, at the rate of one pass through "
        "memory. Times: a step, in times of the larger floor.",
        f"Start to first step: PyTorch {medians['torch_impl']:.1f} s; JAX "
        f"{medians['jax_impl, cold']:.1f} s where nothing is compiled yet.",
        "Exponent: b of seconds = a * size**b; 1 is linear. Below 1, a fixed cost is in the small "
        "sizes. Operations grow by the square of the width and memory traffic by the width, so "
        "time grows more slowly than operations.",
    ]


def show(report: dict[str, Any]) -> None:
    """Print the tables and the notes."""
    screen = console.console()
    for made in (cases_table(report), targets_table(report), growth_table(report)):
        drawn = console.table(*made.headers)
        for row in made.rows:
            drawn.add_row(*row)
        screen.print(drawn)
    for note in notes(report):
        screen.print(note)
