"""Crossed: whole layouts of framework x platform x seed among runs, and what adds to the variance.

Found from the records, whatever design the runs come from. Of an incomplete layout the largest
whole part that a simple rule finds is taken: the level with the largest share of empty places is
given up, until none is empty. Levels that are bitwise identical throughout are one level, and
repeats that are, one run: they are no independent evidence.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.bits import Twins
from parity.curves import mean
from parity.effects import SETTINGS
from parity.provenance import CAUSES
from parity.results import Result
from parity.variance import FACTORS, INTERACTION, NOISE, PARTS, Component, Repeats, split

EQUAL = (*(name for name in SETTINGS if name not in FACTORS), *CAUSES["data"][:-1])
"""Settings that the runs of a layout share: all but the factors and the seed."""

MAX_PREDICTED = 300
"""Runs whose predictions are split; of more, those of the first seeds. Of 10,000 images, 300 runs
take a second."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """The parts of the variance of one outcome."""

    name: str
    """accuracy (pp), loss (nats) or predictions (share of test images)."""
    parts: tuple[Component, ...]
    """Of predictions, the variance of a class, which is the share of images on which two runs
    disagree that draw this part anew."""
    num_seeds: int
    repeats: Component | None
    """What runs that differ in nothing differ by, which is part of the noise; None without."""

    @property
    def total(self) -> float:
        """The variance of a run on any framework and platform, with any seed."""
        return math.fsum(part.variance for part in self.parts)

    def part(self, name: str) -> Component | None:
        """Return a part by its name; None where the runs do not vary it."""
        return next((part for part in self.parts if part.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """Runs of one configuration on several frameworks or platforms."""

    values: dict[str, Any]
    """What the runs share: the settings in `EQUAL`."""
    frameworks: tuple[tuple[str, ...], ...]
    """The levels: one name each, or several that are bitwise identical throughout."""
    platforms: tuple[tuple[str, ...], ...]
    seeds: tuple[int | None, ...]
    members: tuple[int, ...]
    """Positions of the runs of the whole layout, copies included."""
    num_left_out: int
    """Runs of this configuration that do not fit into it."""
    mean_accuracy: float | None
    """Percent."""
    num_images: int | None
    """Of the test set, where known."""
    measures: tuple[Measure, ...]
    """Accuracy, loss, and predictions where they are recorded; empty if there is a reason."""
    why_not: str | None
    """Why these runs cannot be split."""

    @property
    def bitwise(self) -> bool:
        """Whether within a seed all runs are bitwise identical."""
        return len(self.frameworks) == len(self.platforms) == 1 and not self.why_not

    @property
    def sampling_error(self) -> float | None:
        """Standard error of an accuracy for want of more test images, pp (binomial)."""
        if self.num_images is None or self.mean_accuracy is None:
            return None
        share = self.mean_accuracy / 100
        return 100 * math.sqrt(max(share * (1 - share), 0.0) / self.num_images)


def crossed(
    results: Sequence[Result],
    finished: Sequence[int],
    *,
    sets: Sequence[Sequence[int]],
    twins: Sequence[Twins],
    predictions: Sequence[np.ndarray | None],
) -> list[Crossed]:
    """Return each configuration with runs on several frameworks or platforms, the largest first.

    Args:
        results: All results compared.
        finished: Positions of the finished ones.
        sets: The comparable sets of all.
        twins: The copies among all.
        predictions: Predicted classes of all.
    """
    set_of = {i: number for number, members in enumerate(sets) for i in members}
    copy = {i: twin.members[0] for twin in twins for i in twin.members}
    families: dict[str, list[int]] = defaultdict(list)
    for i in finished:
        families[str([results[i].facts.get(name) for name in (*EQUAL, "kind")])].append(i)
    found = [
        _crossed(results, members, _one_set_a_seed(results, members, set_of), copy, predictions)
        for members in families.values()
        if any(len({results[i].facts[name] for i in members}) > 1 for name in FACTORS)
    ]
    return sorted(found, key=lambda layout: -len(layout.members))


def _one_set_a_seed(
    results: Sequence[Result], members: Sequence[int], set_of: dict[int, int]
) -> list[int]:
    """Return the members of each seed's largest comparable set."""
    sizes = Counter(set_of[i] for i in members)
    best: dict[Any, int] = {}
    for i in members:
        held = best.setdefault(results[i].seed, set_of[i])
        if sizes[set_of[i]] > sizes[held]:
            best[results[i].seed] = set_of[i]
    return [i for i in members if best[results[i].seed] == set_of[i]]


Cell = dict[int, int]
"""The distinct runs of one framework, platform and seed: the first of all copies, and the run."""


def _crossed(
    results: Sequence[Result],
    family: Sequence[int],
    members: Sequence[int],
    copy: dict[int, int],
    predictions: Sequence[np.ndarray | None],
) -> Crossed:
    places = [(results[i].framework, results[i].platform, results[i].seed) for i in members]
    cells: dict[Hashable, Cell] = defaultdict(dict)
    for i, place in zip(members, places, strict=True):
        cells[place].setdefault(copy.get(i, i), i)
    # No seed (of a file that records none) comes first.
    levels = [
        sorted({p[axis] for p in places}, key=lambda x: (x is not None, x)) for axis in range(3)
    ]
    levels = whole(levels, set(places))
    grid = np.empty([len(names) for names in levels], object)
    for index in np.ndindex(grid.shape):
        grid[index] = cells[tuple(names[i] for names, i in zip(levels, index, strict=True))]
    names, distinct = merged(grid, levels[:2])
    kept = [
        i
        for i, place in zip(members, places, strict=True)
        if all(name in known for name, known in zip(place, levels, strict=True))
    ]
    why_not = _why_not(levels)
    images = [predictions[i] for i in kept]
    known = {None if image is None else image.size for image in images}
    (num_images,) = known if len(known) == 1 else (None,)
    measures = [] if why_not else _measures(results, distinct, predictions, num_images)
    varied = [len(names_of) > 1 for names_of in levels[:2]]
    return Crossed(
        values={name: results[family[0]].facts.get(name) for name in EQUAL},
        frameworks=names[0],
        platforms=names[1],
        seeds=tuple(levels[2]),
        members=tuple(kept),
        num_left_out=len(family) - len(kept),
        mean_accuracy=mean([_final(results[i], "accuracy") for i in kept]) if kept else None,
        num_images=num_images,
        measures=tuple(_with_exact_zeros(m, varied, distinct.shape) for m in measures),
        why_not=why_not,
    )


def _why_not(levels: Sequence[Sequence[Any]]) -> str | None:
    if len(levels[0]) < 2 and len(levels[1]) < 2:
        return (
            "No framework and platform have a counterpart: the two changed only together, or with "
            "the seed. Run every framework on every platform, with the same seeds"
        )
    if len(levels[2]) < 2:
        return "All have one seed, so that what differs may be its chance. Add seeds, best to five"
    return None


def whole(levels: Sequence[Sequence[Any]], places: set[Any]) -> list[list[Any]]:
    """Return the levels of each factor for which every combination is there.

    Args:
        levels: Names of each factor's levels.
        places: The combinations that there are.
    """
    kept = [list(names) for names in levels]
    there = np.zeros([len(names) for names in kept], bool)
    position = [{name: i for i, name in enumerate(names)} for names in kept]
    for place in places:
        there[tuple(p[name] for p, name in zip(position, place, strict=True))] = True
    while not there.all():
        others = [tuple({0, 1, 2} - {axis}) for axis in range(3)]
        # The last level of those with the largest share: what was added last to a study.
        missing = [(~there).mean(axis=other)[::-1] for other in others]
        axis = max(range(3), key=lambda axis: missing[axis].max())
        worst = there.shape[axis] - 1 - int(missing[axis].argmax())
        there = np.delete(there, worst, axis)
        del kept[axis][worst]
    return kept


def merged(
    grid: np.ndarray, levels: Sequence[Sequence[str]]
) -> tuple[list[tuple[tuple[str, ...], ...]], np.ndarray]:
    """Return the names of the distinct levels of framework and platform, and the grid of these.

    Args:
        grid: A `Cell` each. Shape (frameworks, platforms, seeds).
        levels: Names of the frameworks and of the platforms.
    """
    bits = np.empty(grid.shape, object)
    for index, cell in np.ndenumerate(grid):
        bits[index] = frozenset(cell)
    names: list[tuple[tuple[str, ...], ...]] = []
    firsts: list[list[int]] = []
    for axis, all_names in enumerate(levels):
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for i in range(len(all_names)):
            alike[tuple(bits.take(i, axis).flat)].append(i)
        names.append(tuple(tuple(all_names[i] for i in group) for group in alike.values()))
        firsts.append([group[0] for group in alike.values()])
    return names, grid[np.ix_(*firsts, range(grid.shape[2]))]


def _final(result: Result, name: str) -> float:
    return float(getattr(result.curves, f"test_{name}")[-1])


def _measures(
    results: Sequence[Result],
    grid: np.ndarray,
    predictions: Sequence[np.ndarray | None],
    num_images: int | None,
) -> list[Measure]:
    def numbers(name: str) -> Measure:
        return _measure(name, grid, {i: np.array([_final(results[i], name)]) for i in _runs(grid)})

    found = [numbers("accuracy"), numbers("loss")]
    data = {(results[i].fingerprints or {}).get("data") for i in _runs(grid)}
    num_seeds = min(grid.shape[2], MAX_PREDICTED // (grid.shape[0] * grid.shape[1]))
    # Where each seed has other test images, their classes have nothing in common.
    if num_images and len(data) == 1 and num_seeds > 1:
        few = grid[:, :, :num_seeds]
        found.append(_measure("predictions", few, _coordinates(predictions, _runs(few))))
    return found


def _runs(grid: np.ndarray) -> list[int]:
    return [i for cell in grid.flat for i in cell.values()]


def _coordinates(
    predictions: Sequence[np.ndarray | None], members: Sequence[int]
) -> dict[int, np.ndarray]:
    """Return for each run a vector, so that vectors vary as much as the predicted classes do.

    Two are as far apart, squared and halved, as the share of images on which the runs disagree:
    what vectors of an entry for each image and class would be, 1 where the run predicts it. These
    are the same ones turned, with no more entries than there are runs (principal coordinates,
    Gower 1966, doi:10.1093/biomet/53.3-4.325).
    """
    classes = np.stack([image for i in members if (image := predictions[i]) is not None])
    alike = np.zeros((len(members), len(members)))
    for number in np.unique(classes):
        predicted = (classes == number).astype(np.float32)
        alike += predicted @ predicted.T  # whole numbers, exact below 2**24 images
    alike /= classes.shape[1]
    centred = alike - alike.mean(axis=0) - alike.mean(axis=1, keepdims=True) + alike.mean()
    sizes, axes = np.linalg.eigh(centred)
    # Rounding of numbers near 1; one image of a million on which two runs differ is 1e-6.
    some = sizes > 1e-12
    return dict(zip(members, axes[:, some] * np.sqrt(sizes[some]), strict=True))


def _measure(name: str, grid: np.ndarray, outcome: dict[int, np.ndarray]) -> Measure:
    """Return the parts of an outcome, a vector a run."""
    size = len(next(iter(outcome.values())))
    values = np.empty((*grid.shape, size))
    squares, free, hidden = 0.0, 0, 0.0
    for index, cell in np.ndenumerate(grid):
        first, *more = (outcome[i] for i in cell.values())
        values[index] = first
        if more:
            runs = np.stack([first, *more])
            values[index] = runs.mean(axis=0)
            squares += float(((runs - values[index]) ** 2).sum())
            free += len(more)
            hidden += (1 - 1 / len(runs)) / grid.size
    repeats = Repeats(squares / free, free, hidden) if free else None
    parts = split(values, repeats=repeats)
    if name == "predictions":  # of which a share is at most all
        parts = [p if p.high is None else p._replace(high=min(p.high, 1.0)) for p in parts]
    return Measure(
        name=name,
        parts=tuple(parts),
        num_seeds=grid.shape[2],
        repeats=None if repeats is None else repeats.component(),
    )


def _with_exact_zeros(measure: Measure, varied: Sequence[bool], shape: tuple[int, ...]) -> Measure:
    """Return the measure with the factors whose levels are bitwise identical, as exactly zero."""
    parts = {part.name: part for part in measure.parts}
    for name, there in zip((*FACTORS, INTERACTION), (*varied, all(varied)), strict=True):
        if there:
            parts.setdefault(name, Component(name, 0.0, 0.0, 0.0))
    if shape[0] == shape[1] == 1 and not parts[NOISE].variance:
        parts[NOISE] = Component(NOISE, 0.0, 0.0, 0.0)
    return replace(measure, parts=tuple(parts[name] for name in PARTS if name in parts))
