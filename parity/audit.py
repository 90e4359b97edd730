"""Audit: what a set of runs can show at all, before anybody reads their means."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from parity.bits import Twins
from parity.confounding import Confounded, Mixture, confounded, mixture
from parity.contrasts import Contrast, block_of, contrasts, differing, distinct, unlike
from parity.noise import Contest, contest
from parity.results import Result

CONTESTANTS = ("platform", "framework")
"""What is held against the noise."""


class Copies(NamedTuple):
    """Runs that agree in every bit."""

    members: tuple[int, ...]
    digest: str | None
    """SHA-256 of the final weights; None for files that record figures alone."""
    unlike: tuple[str, ...]
    """Settings, framework and platform too, in which their records differ all the same."""


class Contested(NamedTuple):
    """The devices, or the frameworks, of one experiment against the noise."""

    field: str
    values: dict[str, Any]
    """What the runs have in common: the fields of their group but platform and framework."""
    members: tuple[int, ...]
    """Positions of the runs, copies left out."""
    num_copies: int
    """Runs left out."""
    contest: Contest


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What a set of runs can show. Runs are positions in the results compared."""

    num_runs: int
    """Finished ones."""
    num_distinct: int
    """Without copies."""
    copies: tuple[Copies, ...]
    contrasts: tuple[Contrast, ...]
    confounded: tuple[Confounded, ...]
    mixtures: tuple[Mixture, ...]
    """Of the comparison's groups."""
    contests: tuple[Contested, ...]
    """The one with most runs first."""


def audit(
    results: Sequence[Result],
    finished: Sequence[int],
    *,
    sets: Sequence[Sequence[int]],
    twins: Sequence[Twins],
    groups: Sequence[Sequence[int]],
    experiment: dict[str, tuple[str, ...]],
) -> Audit:
    """Return what a set of runs can show.

    Args:
        results: All results compared.
        finished: Positions of the finished ones.
        sets: The comparable sets of all.
        twins: The copies among all.
        groups: The members of the comparison's groups.
        experiment: For each kind of result, the fields by which it is grouped by default.
    """
    set_of = {i: number for number, members in enumerate(sets) for i in members}
    once = distinct(results, finished, twins)
    mixtures = (mixture(results, number, members) for number, members in enumerate(groups))
    return Audit(
        num_runs=len(finished),
        num_distinct=len(once),
        copies=tuple(
            Copies(
                twin.members,
                twin.digest,
                tuple(
                    dict.fromkeys(
                        name
                        for i in twin.members[1:]
                        for name in unlike(results[twin.members[0]], results[i])
                    )
                ),
            )
            for twin in twins
        ),
        contrasts=tuple(contrasts(results, once, set_of)),
        confounded=tuple(confounded(results, finished, set_of)),
        mixtures=tuple(found for found in mixtures if found),
        contests=tuple(
            sorted(
                _contests(results, finished, once, set_of, experiment),
                key=lambda found: (
                    CONTESTANTS.index(found.field),
                    -found.contest.num_runs,
                ),
            )
        ),
    )


def _contests(
    results: Sequence[Result],
    finished: Sequence[int],
    once: Sequence[int],
    set_of: dict[int, int],
    experiment: dict[str, tuple[str, ...]],
) -> list[Contested]:
    names = differing(results, once)
    kept = set(once)
    families: dict[Hashable, tuple[dict[str, Any], list[int]]] = {}
    for i in finished:
        fields = [n for n in experiment[results[i].kind] if n not in CONTESTANTS]
        values = {name: results[i].facts.get(name) for name in fields}
        families.setdefault(str(values), (values, []))[1].append(i)
    found: list[Contested] = []
    for values, family in families.values():
        members = [i for i in family if i in kept]
        for field in CONTESTANTS:
            result = contest(
                [float(results[i].curves.test_accuracy[-1]) for i in members],
                [str(results[i].facts[field]) for i in members],
                [block_of(results, i, names, set_of, without=field) for i in members],
            )
            if result is not None:
                copies = len(family) - len(members)
                found.append(Contested(field, values, tuple(members), copies, result))
    return found
