"""Groups of a user's runs beside the article's devices: final accuracies, and nothing closer.

The article's runs drew other random streams and began from other initial weights. So no bits, no
steps and no curves compare, and the only claim to be had is "equivalent": within a margin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from parity.article.figures import Figures, Pooled, figures
from parity.article.files import ArticleFile
from parity.config import TrainConfig
from parity.curves import Equivalence, difference, equivalence, mean, population_std
from parity.results import Result, from_article

CONDITIONS = ("dataset", "train_size", "test_size", "lr", "batch_size", "epochs")
"""Settings that must be the article's, which are `TrainConfig`'s defaults."""


class PublishedDevice(NamedTuple):
    """Runs of the article on one device."""

    optimizer: str
    device: str
    num_runs: int
    mean: float
    """Of the final test accuracies, percent."""
    std: float
    """The population's, pp."""


class Beside(NamedTuple):
    """One group beside the article's devices."""

    group: int
    """Position in the comparison's groups."""
    reasons: tuple[str, ...]
    """Why its accuracies do not compare at all; where there are some, nothing else is given."""
    optimizer: str | None
    differences: tuple[float, ...]
    """Mean of the group minus that of each device with this optimizer, pp."""
    difference: float | None
    """Mean of the group minus the mean of all of these runs of the article, pp."""
    equivalence: Equivalence | None
    """Of the latter; runs taken as independent."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """The article's devices, and groups beside them."""

    devices: tuple[PublishedDevice, ...]
    """With Adam the headline group, with other optimizers the optimizer_ files."""
    groups: tuple[Beside, ...]


def beside(
    results: Sequence[Result], groups: Sequence[Sequence[int]], article: Sequence[ArticleFile]
) -> Published:
    """Return groups of runs beside the article's devices.

    Args:
        results: The results compared.
        groups: Positions of the runs of each group.
        article: The article's files, all of them.
    """
    files = [from_article(file) for file in article]
    published = figures(files, threshold=70.0)
    assert published is not None
    accuracies = _accuracies(files, published)
    devices = tuple(
        PublishedDevice(optimizer, device, len(final), mean(final), population_std(final))
        for (optimizer, device), final in accuracies.items()
    )
    return Published(
        devices=devices,
        groups=tuple(
            _beside(position, [results[i] for i in members], accuracies)
            for position, members in enumerate(groups)
            if results[members[0]].kind == "run"
        ),
    )


def _accuracies(files: Sequence[Result], published: Figures) -> dict[tuple[str, str], list[float]]:
    """Return the final accuracies by optimizer and device."""

    def final(entry: Pooled) -> list[float]:
        return [float(files[i].curves.test_accuracy[-1]) for i in entry.pool.members]

    others = [cell for cell in published.optimizers if cell.value != "adam"]
    others.sort(key=lambda cell: cell.value)
    headline = {("adam", entry.name): final(entry) for entry in published.devices}
    # One run each, whose accuracy is its mean.
    return headline | {(cell.value, cell.device): [cell.mean] for cell in others}


def _beside(
    position: int, members: Sequence[Result], accuracies: dict[tuple[str, str], list[float]]
) -> Beside:
    reasons = _reasons(members)
    if reasons:
        return Beside(position, reasons, None, (), None, None)
    optimizer = members[0].optimizer
    own = [float(result.curves.test_accuracy[-1]) for result in members]
    theirs = [final for (name, _), final in accuracies.items() if name == optimizer]
    every = [x for final in theirs for x in final]
    return Beside(
        group=position,
        reasons=(),
        optimizer=optimizer,
        differences=tuple(difference(mean(own), mean(final)) for final in theirs),
        difference=difference(mean(own), mean(every)),
        equivalence=equivalence(own, every),
    )


def _reasons(members: Sequence[Result]) -> tuple[str, ...]:
    defaults = TrainConfig().to_json()
    reasons = [
        f"{name} {', '.join(map(str, values))}, the article's is {_in_words(defaults[name])}"
        for name in CONDITIONS
        if (values := list(dict.fromkeys(r.facts[name] for r in members))) != [defaults[name]]
    ]
    if len({result.optimizer for result in members}) > 1:
        reasons.append("the group mixes optimizers")
    return tuple(reasons)


def _in_words(value: object) -> str:
    return "all" if value is None else str(value)
