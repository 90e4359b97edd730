"""Effects: what one setting does to the final accuracy where every other setting is equal.

A plain mean over all runs with a setting mixes in the others; here only runs are set against each
other that agree in all other treatments.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from parity.curves import difference, mean
from parity.provenance import CAUSES, TREATMENTS
from parity.results import Result

SETTINGS = (*(name for name in TREATMENTS if name not in CAUSES["data"]), "workers")
"""Not those that change the data: accuracies on other test images are no effect."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one value of a setting does to the final test accuracy, against another value."""

    field: str
    first: Any
    """The most frequent value."""
    second: Any
    num_matches: int
    """Sets of runs that are equal in every other setting and have both values."""
    pooled_difference: float
    """Mean of all runs with the first value minus that of all with the second, whatever else
    they have in common, pp: what a plain table of means shows."""
    mean_difference: float
    """Mean over the matches of the accuracy with the first value minus that with the second, pp."""
    min_difference: float
    max_difference: float


def effects(results: Sequence[Result]) -> list[Effect]:
    """Return the effect of every setting that has matched runs.

    Args:
        results: Finished runs, each with its final accuracy.
    """
    values = [{name: str(result.facts.get(name)) for name in SETTINGS} for result in results]
    differing = [name for name in SETTINGS if len({fact[name] for fact in values}) > 1]
    found: list[Effect] = []
    for name in differing:
        others = [n for n in differing if n != name]
        matches: dict[Hashable, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for result, fact in zip(results, values, strict=True):
            data = (result.fingerprints or {}).get("data")
            match = (result.seed, data, *(fact[other] for other in others))
            matches[match][fact[name]].append(float(result.curves.test_accuracy[-1]))
        counts = Counter(fact[name] for fact in values)
        # The lesser name where two are equally frequent, so that no order of runs decides.
        first = min(counts, key=lambda value: (-counts[value], value))
        typed = {str(result.facts.get(name)): result.facts.get(name) for result in results}
        for second in sorted(counts.keys() - {first}):
            found += _effect(name, typed[first], typed[second], list(matches.values()))
    return found


def _effect(
    field: str, first: Any, second: Any, matches: Sequence[dict[str, list[float]]]
) -> list[Effect]:
    a, b = str(first), str(second)
    apart = [
        difference(mean(match[a]), mean(match[b])) for match in matches if a in match and b in match
    ]
    if not apart:
        return []
    pooled = [[x for match in matches for x in match.get(value, ())] for value in (a, b)]
    return [
        Effect(
            field=field,
            first=first,
            second=second,
            num_matches=len(apart),
            pooled_difference=difference(mean(pooled[0]), mean(pooled[1])),
            mean_difference=mean(apart),
            min_difference=min(apart),
            max_difference=max(apart),
        )
    ]
