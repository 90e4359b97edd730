"""What the runs can show at all, in words for readers without statistics, then in tables."""

from collections.abc import Iterator

from rich.console import RenderableType

from parity.audit import Audit, Contested, Copies
from parity.comparison import Comparison
from parity.confounding import Confounded, Mixture
from parity.contrasts import Contrast
from parity.noise import LEVEL, MARGIN, MAX_RUNS_NEEDED, Contest
from parity.tables.notation import (
    MAX_ROWS,
    MAX_VALUES,
    figure,
    heading,
    indented,
    left_out,
    letters,
    narrow_table,
    numbers,
    runs,
    short,
)

PLURAL = {"platform": "devices", "framework": "frameworks"}

MAX_CONTESTS = 8
"""Experiments shown; those with fewer runs stand in the JSON document."""


def audit(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield what the finished runs can show, and what they cannot."""
    found = comparison.audit
    everything = comparison.pooled
    if found.num_runs < 2 or (everything and everything.agreement and everything.agreement.bitwise):
        return
    yield heading("What these runs can show")
    yield from _copies(found)
    for field in PLURAL:
        contests = [c for c in found.contests if c.field == field]
        if contests:
            yield contest_in_words(contests[0], _experiment(comparison, contests[0]))
    yield from _streams(comparison)
    yield from _confounded(found)
    yield from _mixtures(found)
    yield from _contests(comparison)
    yield from _contrasts(found)


def _copies(found: Audit) -> Iterator[RenderableType]:
    if found.num_distinct < found.num_runs:
        yield (
            f"{found.num_runs:,} runs are {found.num_distinct:,} distinct ones. Copies, equal in "
            "every bit, are good news about determinism, but no further evidence: they count once."
        )
    unlike: dict[tuple[str, ...], list[Copies]] = {}
    for copies in found.copies:
        if copies.unlike:
            unlike.setdefault(copies.unlike, []).append(copies)
    for fields, sets in list(unlike.items())[:MAX_VALUES]:
        members = "; ".join(numbers(copies.members) for copies in sets[:MAX_VALUES])
        more = f" and {len(sets) - MAX_VALUES:,} sets more" if len(sets) > MAX_VALUES else ""
        # Figures alone do not say which it is; equal weights can only come of equal work.
        doubt = "" if all(copies.digest for copies in sets) else ", or a record is wrong"
        yield (
            f"Runs {members}{more} agree in every bit though their records differ in "
            f"{' and '.join(fields)}: that changed nothing{doubt}."
        )
    yield from left_out(MAX_VALUES, len(unlike), "sets of such runs")


def _experiment(comparison: Comparison, contested: Contested) -> str:
    """Return a short name for the runs: that of their group, or what they have in common."""
    for position, group in enumerate(comparison.groups):
        if group.values == contested.values:
            return f"group {letters(position)}"
    alike = [c.values for c in comparison.audit.contests if c.field == contested.field]
    varying = [n for n in contested.values if len({str(v.get(n)) for v in alike}) > 1]
    return short(" ".join(str(contested.values[name]) for name in varying) or "all", 18)


def contest_in_words(contested: Contested, experiment: str) -> str:
    """Return whether the devices, or the frameworks, differ by more than noise, in sentences.

    Args:
        contested: What was held against the noise.
        experiment: Name of the runs.
    """
    contest = contested.contest
    what = PLURAL[contested.field]
    first, second, apart, low, high = contest.largest
    question = f"Do {what} differ?"
    where = (
        f" ({experiment}: {contest.num_runs} runs that compare, on {len(contest.levels)} {what})"
    )
    if apart == 0 and not contest.noise_std:
        return f"{question} Not at all{where}: accuracies are equal wherever all else is."
    gap = (
        f"{first} is {apart:.2f} pp above {second}"
        if len(contest.levels) == 2
        else f"the farthest apart, {first} and {second}, differ by {apart:.2f} pp"
    )
    if contest.noise_std is None or low is None or high is None:
        why = (
            "repeats agree in every bit, so that only other seeds can say whether this is more "
            "than one seed's chance"
            if contested.num_copies
            else "nothing was repeated, so what chance does is unknown; it takes repeats, best "
            "with other seeds"
        )
        return f"{question} These runs cannot tell{where}: {gap}, but {why}."
    noise = (
        "repeats agree exactly"
        if contest.noise_std == 0
        else f"by chance alone a run ends about {contest.noise_std:.2f} pp off"
    )
    if contest.lowest_p_value >= LEVEL:
        return (
            f"{question} These runs cannot tell{where}: {gap}, {noise}, and even the clearest "
            f"result would come by chance {_share(contest.lowest_p_value)}. "
            f"{_needed(contest, what)}"
        )
    answer = "Yes, by more than chance explains" if contest.shown else "Not shown"
    unsettled = " (so which of them differ is not settled)" if contest.shown and low <= 0 else ""
    return (
        f"{question} {answer}{where}: {gap}; {noise}. The true difference lies, with 95 % "
        f"confidence, between {low:+.2f} and {high:+.2f} pp{unsettled}. Dealing the accuracies out "
        f"anew sets {what} as far apart {_share(contest.p_value)}. {_needed(contest, what)}"
    )


def _share(p_value: float) -> str:
    if p_value < 0.01:
        return "in fewer than 1 of 100 cases"
    return f"in {100 * p_value:.0f} of 100 cases"


def _needed(contest: Contest, what: str) -> str:
    if not contest.noise_std or contest.detectable is None:
        return ""
    seen = (
        ""
        if contest.lowest_p_value >= LEVEL
        else f"Runs as few as these show a difference of {contest.detectable:.2f} pp in 8 of 10 "
        "studies, and seldom a smaller one. "
    )
    needed = (
        f"more than {MAX_RUNS_NEEDED:,}"
        if contest.runs_needed is None
        else f"{contest.runs_needed:,}"
    )
    return f"{seen}A firm answer about {MARGIN:g} pp takes {needed} runs on each of the {what}."


def _streams(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield what another stream does, beside what devices and repeats do."""
    contrasts = comparison.audit.contrasts
    for contrast in [c for c in contrasts if c.other_stream][:MAX_VALUES]:
        beside = [
            f"{name} {other.typical:.2f} pp"
            for other in contrasts
            if (name := {"platform": "another device", None: "a mere repeat"}.get(other.field, ""))
            and other.optimizer == contrast.optimizer
        ]
        compared = f" (beside it: {', '.join(beside)})" if beside else ""
        yield (
            f"{_who(comparison, contrast)} draw other random numbers: they cannot be compared as "
            f"evidence of hardware. Such a pair, {_with(contrast)}equal in all else, is typically "
            f"{contrast.typical:.2f} pp apart{compared}."
        )


def _who(comparison: Comparison, contrast: Contrast) -> str:
    if contrast.field == "seed":
        return "Runs of different seeds"
    a, b = (comparison.results[i] for i in contrast.examples[0])
    values = " and ".join(short(r.facts.get(contrast.field or ""), 16) for r in (a, b))
    unrecorded = ", by that setting, for the files do not record it," if not a.fingerprints else ""
    return f"Runs with {contrast.field} {values}{unrecorded}"


def _with(contrast: Contrast) -> str:
    return f"both with {contrast.optimizer}, " if contrast.optimizer else ""


def _confounded(found: Audit) -> Iterator[RenderableType]:
    told: list[Confounded] = []
    for entry in found.confounded:
        # Of two settings that changed only together, one sentence speaks for both.
        if not any(entry.pair == e.pair and entry.field in e.others for e in told):
            told.append(entry)
    for entry in told[:MAX_VALUES]:
        what = entry.field if entry.value is None else f"{entry.field} {short(entry.value, 24)}"
        where = f" on {entry.platform}" if entry.platform else ""
        yield (
            f"Confounded: {what} changed{where} only together with {' and '.join(entry.others)} "
            f"(most alike: {runs(entry.pair)}): no run says which of them did it."
        )
    yield from left_out(MAX_VALUES, len(told), "settings that never changed alone")


def _mixtures(found: Audit) -> Iterator[RenderableType]:
    uneven = [entry for entry in found.mixtures if not entry.balanced]
    if not uneven:
        return
    yield "Means over unlike settings in unlike numbers, whose differences may be the settings':"
    groups: dict[str, list[str]] = {}
    for entry in uneven:
        groups.setdefault(_mixture(entry), []).append(letters(entry.group))
    for text, names in list(groups.items())[:MAX_VALUES]:
        yield indented(f"{'groups' if len(names) > 1 else 'group'} {', '.join(names)}: {text}")
    yield from left_out(MAX_VALUES, len(groups), "kinds of such groups")


def _mixture(entry: Mixture) -> str:
    parts = []
    for field, counts in entry.mixed:
        if len(entry.mixed) > 1 and len({number for _, number in counts}) == 1:
            continue
        shown = [f"{short(value, 16)} ({number})" for value, number in counts[: MAX_VALUES + 2]]
        more = ["..."] if len(counts) > MAX_VALUES + 2 else []
        parts.append(f"{field} {', '.join(shown + more)}")
    return "; ".join(parts) or "combinations of settings in unlike numbers"


def _contests(comparison: Comparison) -> Iterator[RenderableType]:
    everything = comparison.audit.contests
    contests = [contested for contested in everything if contested.contest.noise_std is not None]
    # One experiment of a kind has been told in words.
    if len(contests) == len({contested.field for contested in contests}):
        return
    rows = narrow_table(
        *("", "in", ">n", ">noise,\npp", "farthest", ">pp", ">95 % CI, pp", ">p"),
        *(">shows,\npp", f">n for\n{MARGIN:g} pp"),
    )
    for column in rows.columns:
        column.no_wrap = True
    for contested in contests[:MAX_CONTESTS]:
        contest = contested.contest
        first, second, apart, low, high = contest.largest
        rows.add_row(
            PLURAL[contested.field],
            _experiment(comparison, contested),
            str(contest.num_runs),
            figure(contest.noise_std, 2),
            f"{short(first, 10)} - {short(second, 10)}",
            f"{apart:.2f}",
            "" if low is None or high is None else f"{low:+.1f} to {high:+.1f}",
            f"{contest.p_value:.3f}",
            figure(contest.detectable, 1),
            "" if contest.runs_needed is None else f"{contest.runs_needed:,}",
        )
    yield rows
    yield from left_out(min(len(contests), MAX_CONTESTS), len(everything), "experiments")
    yield (
        "Noise: std of one run within blocks of equal settings and seed. "
        "CI: over all pairs (Bonferroni). p: permutation test. Shows: with power 80 %. n: on each."
    )


def _contrasts(found: Audit) -> Iterator[RenderableType]:
    # A single pair stands in the table of pairs.
    if all(contrast.num_pairs == 1 for contrast in found.contrasts):
        return
    rows = narrow_table(
        *("runs that differ in", "both with", ">pairs", ">typically, pp", ">at most, pp"),
        "for instance",
    )
    for contrast in found.contrasts[:MAX_ROWS]:
        stream = " (another stream)" if contrast.other_stream else ""
        rows.add_row(
            "nothing (repeats)" if contrast.field is None else f"{contrast.field}{stream}",
            contrast.optimizer or "",
            f"{contrast.num_pairs:,}",
            figure(contrast.typical, 2),
            figure(contrast.largest, 2),
            ", ".join(f"{a + 1} & {b + 1}" for a, b in contrast.examples[:3]),
        )
    yield rows
    yield from left_out(MAX_ROWS, len(found.contrasts), "kinds of pairs")
    yield (
        "All else is equal in these pairs, as far as recorded. Typically: root mean square of the "
        "difference in final accuracy."
    )
