"""Provenance: what differs between runs, and whether it is the machine, a treatment or the meaning.

meaning     other data, another stream, other initial weights: the comparison says nothing
seed        the like, where it follows from the seed: comparable within a seed
treatment   framework, platform, optimizer, ...: what was presumably varied on purpose
machine     threads, versions, variables, where data lay: should not matter, and may
"""

import json
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from parity.results import Result

FINGERPRINTS = ("data", "stream", "initial_weights")

TREATMENTS = (
    *("framework", "platform", "arithmetic", "exact_only"),
    *("optimizer", "lr", "batch_size", "epochs"),
    *("dataset", "train_size", "test_size", "seed", "init_weights", "pipeline"),
    *("file_kind", "benchmark", "autotune", "deterministic"),
)

CAUSES = {
    "data": ("dataset", "train_size", "test_size", "seed"),
    "stream": ("dataset", "train_size", "batch_size", "seed", "pipeline", "workers"),
    "initial_weights": ("init_weights", "seed", "pipeline"),
}
"""Settings that change a fingerprint, by the fingerprint's name."""

# Other fields say it already, or it says nothing about how a run was made.
_PASSED_OVER = {"kind", "status", "label", "tf32", "bf16", "amp", "out"}

Role = Literal["meaning", "seed", "treatment", "machine"]


class Value(NamedTuple):
    """One value of a field."""

    value: Any
    """None also where the field is absent."""
    members: tuple[int, ...]
    """Positions of the results that have it."""


class Difference(NamedTuple):
    """A field in which results differ."""

    field: str
    role: Role
    values: tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """A difference that makes comparing across its values meaningless."""

    field: str
    """data, stream or initial_weights; for files of the article also workers."""
    values: tuple[Value, ...]
    causes: tuple[Difference, ...]
    """The settings that differ and can be the reason; empty where no setting explains it."""
    by_seed: bool
    """Whether the seed alone explains it: seeds are varied on purpose, to compare groups."""


def comparable_sets(results: Sequence[Result]) -> list[tuple[int, ...]]:
    """Return the sets within which runs can be compared bit by bit, in the order of the results.

    Those of one data, one stream and one set of initial weights. The article's files do not record
    them; there, runs of one seed and one number of loader workers count as one set, because worker
    processes draw the random crops and flips from other generators.
    """
    sets: dict[Hashable, list[int]] = defaultdict(list)
    for i, result in enumerate(results):
        if result.fingerprints is None:
            sets["article", result.seed, result.configuration.get("workers")].append(i)
        else:
            sets[tuple(result.fingerprints[name] for name in FINGERPRINTS)].append(i)
    return [tuple(members) for members in sets.values()]


def obstacles(results: Sequence[Result]) -> list[Obstacle]:
    """Return what makes comparing some of the results meaningless, the most basic first."""
    found: list[Obstacle] = []
    recorded = [i for i, result in enumerate(results) if result.fingerprints is not None]
    for name in FINGERPRINTS:
        values = _values(results, recorded, lambda r, name=name: (r.fingerprints or {})[name])
        if len(values) > 1:
            found.append(_obstacle(results, name, values, CAUSES[name]))
    files = [i for i, result in enumerate(results) if result.fingerprints is None]
    for name in ("seed", "workers"):
        values = _values(results, files, lambda r, name=name: r.facts.get(name))
        if len(values) > 1:
            found.append(_obstacle(results, name, values, (name,)))
    return found


def _obstacle(
    results: Sequence[Result], field: str, values: tuple[Value, ...], causes: tuple[str, ...]
) -> Obstacle:
    members = sorted(i for value in values for i in value.members)
    differing = [_difference(results, members, name) for name in causes]
    seeds_of_each = [{results[i].seed for i in value.members} for value in values]
    distinct = set().union(*seeds_of_each)
    return Obstacle(
        field=field,
        values=values,
        causes=tuple(d for d in differing if len(d.values) > 1),
        # Each seed has one value only.
        by_seed=len(distinct) > 1 and sum(map(len, seeds_of_each)) == len(distinct),
    )


def differences(results: Sequence[Result]) -> list[Difference]:
    """Return every field in which results differ, in the order of the roles above.

    A field counts among those of a kind (run, file of the article) and a framework that have it at
    all: that only one framework names its version of cuDNN is no difference.
    """
    facts = [result.facts for result in results]
    found = [
        Difference(o.field, "seed" if o.by_seed else "meaning", o.values)
        for o in sorted(obstacles(results), key=lambda o: o.by_seed)
    ]
    taken = {difference.field for difference in found} | _PASSED_OVER
    names = dict.fromkeys(name for fact in facts for name in fact if name not in taken)
    owners: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for result, fact in zip(results, facts, strict=True):
        for name in fact:
            owners[name].add((result.kind, result.framework))
    for name in sorted(names, key=lambda n: TREATMENTS.index(n) if n in TREATMENTS else 99):
        members = [i for i, r in enumerate(results) if (r.kind, r.framework) in owners[name]]
        difference = _difference(results, members, name)
        if len(difference.values) > 1:
            found.append(difference)
    return found


def _difference(results: Sequence[Result], members: Sequence[int], name: str) -> Difference:
    values = _values(results, members, lambda result: result.facts.get(name))
    return Difference(name, "treatment" if name in TREATMENTS else "machine", values)


def _values(results: Sequence[Result], members: Sequence[int], get: Any) -> tuple[Value, ...]:
    by_key: dict[Hashable, tuple[Any, list[int]]] = {}
    for i in members:
        value = get(results[i])
        # JSON tells all values apart, but takes its time; with the type, 1 and True are two.
        plain = isinstance(value, str | int | None)
        key = (type(value), value) if plain else json.dumps(value, default=str)
        by_key.setdefault(key, (value, []))[1].append(i)
    return tuple(Value(value, tuple(positions)) for value, positions in by_key.values())
