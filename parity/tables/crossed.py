"""Framework or hardware: which adds to the variance of results, in sentences and one table."""

import math
from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType

from parity.comparison import Comparison
from parity.crossed import Crossed, Measure
from parity.tables.notation import heading, left_out, narrow_table, short
from parity.variance import CONFIDENCE, FACTORS, INTERACTION, NOISE, SEED, Component, exceeds

MAX_SHOWN = 4
"""Configurations shown; those with fewer runs stand in the JSON document."""

UNITS = {"accuracy": "pp", "loss": "nats", "predictions": "% of images"}

COLUMNS = {"accuracy": "acc,\npp", "loss": "loss,\nnats", "predictions": "images,\n%"}

OUTCOMES = {
    "accuracy": "Final accuracy",
    "loss": "Final test loss",
    "predictions": "Predictions",
}


def crossed(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield what framework, platform, their interaction, seed and noise add to the variance."""
    everything = comparison.pooled
    # Runs of one seed that agree in every bit: the verdict has said all.
    bitwise = everything and everything.agreement and everything.agreement.bitwise
    if not comparison.crossed or bitwise:
        return
    whole = [layout for layout in comparison.crossed if layout.measures]
    yield heading("Framework or hardware: what the variance is made of")
    for layout in whole[:MAX_SHOWN]:
        name = experiment(comparison, layout)
        yield _layout(layout, f"{name}: " if name else "")
        yield from map(_finding, [layout] * len(layout.measures), layout.measures)
        yield _table(layout)
    yield from left_out(MAX_SHOWN, len(whole), "configurations")
    if whole:
        yield _legend(whole)
    reasons = Counter(layout.why_not for layout in comparison.crossed if layout.why_not)
    for reason, count in reasons.items():
        many = f"{count:,} configurations" if count > 1 else "One configuration"
        yield f"{many} cannot be split. {reason}."


def experiment(comparison: Comparison, layout: Crossed) -> str:
    """Return the settings by which a configuration differs from the others, if there are any."""
    others = [other.values for other in comparison.crossed if other.measures]
    names = [n for n in layout.values if len({str(values[n]) for values in others}) > 1]
    return short(" ".join(str(layout.values[name]) for name in names), 40)


def _layout(layout: Crossed, name: str) -> str:
    """Return which runs these are, and which of them are no evidence of their own."""
    parts = [
        f"{len(found)} {plural if len(found) > 1 else plural[:-1]} ({', '.join(found)})"
        for plural, found in (
            ("frameworks", [n for level in layout.frameworks for n in level]),
            ("platforms", [n for level in layout.platforms for n in level]),
        )
    ]
    parts.append(f"{len(layout.seeds)} seeds")
    same = [
        f" {_listed(level)} are bitwise identical throughout and count as one."
        for levels in (layout.frameworks, layout.platforms)
        for level in levels
        if len(level) > 1 and not layout.bitwise
    ]
    more = layout.num_left_out
    rest = (
        f" Left out, for what they would be set against is missing: {more:,} "
        f"run{'s' if more > 1 else ''}."
        if more
        else ""
    )
    return f"{name}{' x '.join(parts)}: {len(layout.members):,} runs.{''.join(same)}{rest}"


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _finding(layout: Crossed, measure: Measure) -> str:
    """Return which parts matter for one outcome, how surely, and when that cannot be told."""
    outcome = OUTCOMES[measure.name]
    if not measure.total:
        return f"{outcome}: equal in all runs."
    seed, noise = measure.part(SEED), measure.part(NOISE)
    assert seed is not None
    assert noise is not None
    if layout.bitwise:
        zero = ", ".join(part.name for part in measure.parts if part.exact)
        why = (
            "within each seed all runs are bitwise identical, whatever the framework and platform, "
            f"so that these parts are exactly zero: {zero}. Only the seed matters"
            if measure.name == "accuracy"
            else "only the seed matters"
        )
        return f"{outcome}: {why}: {_amount(measure, seed)}."
    factors = [part for name in FACTORS if (part := measure.part(name)) is not None]
    together = measure.part(INTERACTION)
    details = "; ".join(f"{part.name} {_amount(measure, part)}" for part in factors)
    sentences = [f"{outcome}: {_answer(factors, together, noise)} [{details}]."]
    if together is not None and together.shown:
        sentences.append(
            f"What the platform does depends on the framework: {_amount(measure, together)}."
        )
    single = (
        " Noise is how far, beside that, another framework or platform throws a single run off, up "
        "or down, as any change of rounding may."
        if measure.name == "accuracy" and noise.variance
        else ""
    )
    scale = f"{_most(measure)}: seed {_amount(measure, seed)}; noise {_amount(measure, noise)}."
    return " ".join([*sentences, scale]) + single


def _answer(factors: list[Component], together: Component | None, noise: Component) -> str:
    """Return which of the factors matters, as a clause."""
    shown = sorted((f for f in factors if f.shown), key=lambda part: -part.variance)
    hidden = [part for part in factors if not part.shown]
    if not shown and together is not None and together.shown:
        return "framework and platform matter, but only together"
    if not shown:
        none = (
            f"the {factors[0].name} is not"
            if len(factors) == 1
            else "neither the framework nor the platform is"
        )
        # Where even the limit is below noise, a single run would not show the difference.
        open_ = any(part.high is None or part.high > noise.variance for part in hidden)
        doubt = ", but so few seeds cannot rule out that it does as much as noise" if open_ else ""
        return f"{none} shown to matter{doubt}"
    first, *others = [*shown, *hidden]
    if not others:
        return f"the {first.name} matters"
    (second,) = others
    if exceeds(first, second):
        return f"the {first.name} matters, more than the {second.name}"
    if second.shown:
        return "framework and platform both matter; which of them more, these runs cannot tell"
    return f"the {first.name} matters; whether more than the {second.name}, these runs cannot tell"


def _most(measure: Measure) -> str:
    largest = max(measure.parts, key=lambda part: part.variance)
    name = "noise" if largest.name == NOISE else f"the {largest.name}"
    return f"Most is {name} ({100 * largest.variance / measure.total:.0f} % of the variance)"


def _amount(measure: Measure, part: Component) -> str:
    """Return a part with its interval, or what is known of it."""
    if part.exact:
        return "exactly nothing: no bit differs"
    if part.low is None or part.high is None:
        return f"{_value(measure, part.variance)} in every seed, how surely is unknown"
    if not part.shown:
        return f"at most {_value(measure, part.high)}"
    low, high = (_number(measure, limit) for limit in (part.low, part.high))
    return f"{_value(measure, part.variance)} ({low} to {high})"


def scaled(measure: Measure, variance: float) -> float:
    """Return a part as it is shown: a standard deviation, or the share of images in percent."""
    return 100 * variance if measure.name == "predictions" else math.sqrt(variance)


def _value(measure: Measure, variance: float) -> str:
    return f"{_number(measure, variance)} {UNITS[measure.name]}"


def _number(measure: Measure, variance: float) -> str:
    return f"{scaled(measure, variance):.{4 if measure.name == 'loss' else 2}f}"


def _table(layout: Crossed) -> RenderableType:
    headers = ["part"]
    for measure in layout.measures:
        headers += [f">{COLUMNS[measure.name]}", f">{100 * CONFIDENCE:g} %", ">share"]
    rows = narrow_table(*headers)
    for column in rows.columns:
        column.no_wrap = True
    for part in layout.measures[0].parts:
        cells = [part.name]
        for measure in layout.measures:
            own = measure.part(part.name)
            assert own is not None
            cells += _cells(measure, own)
        rows.add_row(*cells)
    if any(measure.repeats for measure in layout.measures):
        cells = ["of it repeats"]
        for measure in layout.measures:
            cells += _cells(measure, measure.repeats) if measure.repeats else ("", "", "")
        rows.add_row(*cells)
    totals = [
        cell
        for measure in layout.measures
        for cell in (_number(measure, measure.total), "", "100 %")
    ]
    rows.add_row("all", *totals)
    return rows


def _cells(measure: Measure, part: Component) -> tuple[str, str, str]:
    share = f"{100 * part.variance / measure.total:.0f} %" if measure.total else ""
    if part.exact:
        return "0", "exactly", "0 %"
    if part.low is None or part.high is None:
        return _number(measure, part.variance), "unknown", share
    low, high = (_number(measure, limit) for limit in (part.low, part.high))
    return _number(measure, part.variance), f"{low}-{high}", share


def _legend(whole: list[Crossed]) -> str:
    """Return how the figures are meant, and how exact an accuracy is anyway."""
    measures = {measure.name for layout in whole for measure in layout.measures}
    images = (
        " Images: share of the test images on which two runs disagree because they draw this part "
        "anew; all: on which two of any framework, platform and seed do."
        if "predictions" in measures
        else ""
    )
    error = whole[0].sampling_error
    sampling = (
        ""
        if error is None
        else f" An accuracy on {whole[0].num_images:,} test images is itself uncertain by "
        f"{error:.2f} pp (binomial standard error), as far as other images are meant."
    )
    return (
        "Accuracy, loss: the standard deviation that each part gives to a run on any of these "
        "frameworks and platforms with any seed (two frameworks at 1 pp from each other: 0.5), its "
        f"{100 * CONFIDENCE:g} % interval, as in brackets above, and its share of the variance."
        f"{images} Interaction: what a platform does in one framework alone. Noise: what is left, "
        "that is what a framework or platform does to one seed alone, and mere repeats. Here seeds "
        "alone are independent of one another; whether devices or frameworks differ, above, is "
        "asked of all runs as if they were, so that it finds more, and is sooner wrong."
        f"{sampling}"
    )
