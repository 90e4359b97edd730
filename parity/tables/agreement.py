"""The verdict in words, and pairs and sets of runs, bit by bit."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from parity.bits import CLOSE_STEP
from parity.comparison import Comparison
from parity.provenance import TREATMENTS
from parity.tables.notation import (
    MAX_ROWS,
    MAX_VALUES,
    SIGNS,
    UNDEFINED,
    figure,
    heading,
    indented,
    left_out,
    narrow_table,
    runs,
)
from parity.verdict import CORRELATION_LIMIT, FIT_LIMIT, LOSS_GAP_LIMIT, Pool, Sign, in_words


def verdict(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield what all finished runs show together, and the article's danger signs."""
    everything = comparison.pooled
    if everything is None:
        return
    yield heading("Verdict")
    yield " ".join(in_words(everything))
    if not everything.comparable and comparison.set_pools:
        yield from _sets(comparison)
    judged = [(i, g.pool) for i, g in enumerate(comparison.groups) if g.pool.category]
    if len(judged) > 1:
        named = Counter(pool.category for _, pool in judged)
        counts = ", ".join(f"{count} {category}" for category, count in named.items())
        yield f"Each of the {len(judged)} groups of several runs by itself: {counts}."
    if everything.agreement and everything.agreement.bitwise:
        return
    yield from _twins(comparison)
    if everything.signs:
        own = " (each group's own stand in its table)" if len(judged) > 1 else ""
        yield f"The article's danger signs, over all finished runs{own}:"
        for sign in everything.signs:
            yield indented(_sign(sign))
        yield (
            'The article\'s "Bit-exact" says that final accuracies are less than 0.01 pp apart; it '
            "does not compare bits."
        )


def _sets(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield what holds within the comparable sets of several runs, or within the seeds."""
    pools = comparison.set_pools
    # Files of the article beside runs are sets of their own without any recorded obstacle.
    one_kind = len(comparison.by) == 1
    by_seed = one_kind and all(obstacle.by_seed for obstacle in comparison.obstacles)
    what = "seeds" if by_seed else "sets that are not comparable with one another"
    yield f"That is over {len(comparison.sets):,} {what}."
    bitwise = sum(pool.agreement is not None and pool.agreement.bitwise for pool in pools)
    if bitwise:
        count = "all" if bitwise == len(pools) else f"{bitwise:,} of the"
        yield (
            f"Bitwise identical, each by itself: {count} {len(pools):,} "
            f"{'seeds' if by_seed else 'sets'} that have several runs."
        )
    # Sets of two are pairs, which have a table of their own.
    several = [pool for pool in pools if len(pool.members) > 2]
    if several and bitwise < len(pools):
        yield "Each that has more than two runs by itself:"
        yield from _agreements(several, "sets")


def _twins(comparison: Comparison) -> Iterator[RenderableType]:
    told = {
        pool.members for pool in comparison.set_pools if pool.agreement and pool.agreement.bitwise
    }
    found = [twin for twin in comparison.twins if twin.members not in told]
    for twin in found[:MAX_VALUES]:
        yield (
            f"Bitwise identical: {runs(twin.members)} over {twin.num_epochs} epochs (weights "
            f"sha256 {twin.digest[:12]})."
            if twin.digest
            else f"Copies, and no independent evidence: {runs(twin.members)} are equal in every "
            f"bit of all {4 * twin.num_epochs} logged figures."
        )
    yield from left_out(MAX_VALUES, len(found), "sets of copies")


def _sign(sign: Sign) -> str:
    where = f" between runs {sign.pair[0] + 1} and {sign.pair[1] + 1}" if sign.pair else ""
    value = sign.value
    if sign.name == "loss gap":
        shown = UNDEFINED if value is None else f"{100 * value:.1f} %"
        limit = f"{100 * LOSS_GAP_LIMIT:g} %"
        text = f"training losses of epoch 1 up to {shown} apart{where} (limit {limit})"
    elif sign.name == "fit":
        text = (
            f"one overfits while another underfits: training accuracy and train-test gap both "
            f"{figure(value, 1)} pp apart{where} (limit {FIT_LIMIT:g} pp)"
        )
    else:
        text = (
            f"lowest correlation {figure(value, 4, UNDEFINED)}{where} (limit {CORRELATION_LIMIT})"
        )
    return f"{'YES' if sign.present else 'no '}  {SIGNS[sign.name]}: {text}"


def pairs(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the pairs of runs: those that differ in the fewest treatments first, then the farthest.

    Two runs that differ in one treatment alone say what it does; others mix several effects.
    """
    found = comparison.pairs
    if not found:
        return
    extreme = len(found) < comparison.num_pairs
    comparable = "comparable " if found[0].comparable else ""
    yield heading(
        f"Pairs: the extreme ones of {comparison.num_pairs:,} {comparable}pairs"
        if extreme
        else "Pairs"
    )
    if len(found) > MAX_VALUES and all(_claim(pair).startswith("bitwise") for pair in found):
        yield f"All {len(found):,} are bitwise, over the epochs that both runs have."
        return
    facts = [result.facts for result in comparison.results]

    def controlled_first(pair: Pool) -> tuple[int, list[str], float]:
        a, b = (facts[i] for i in pair.members)
        differing = [name for name in TREATMENTS if a.get(name) != b.get(name)]
        kind = [f"{TREATMENTS.index(name):02d}" for name in differing]
        return len(differing), kind, -pair.spread.max_difference

    yield from _agreements(sorted(found, key=controlled_first), "pairs")


def _agreements(pools: Sequence[Pool], what: str) -> Iterator[RenderableType]:
    """Yield a table with one row for each pair or set of runs."""
    bits = any(pool.agreement and pool.agreement.num_steps for pool in pools)
    claims = any(_claim(pool) for pool in pools)
    headers = [">runs", ">acc, pp", ">r", ">epoch-1\nloss, nats"]
    if bits:
        headers += [">first\nstep", ">first\nepoch", f">by step\n{CLOSE_STEP}", ">images,\n%"]
    rows = narrow_table(*headers, *(["claim"] if claims else []))
    for column in rows.columns:
        column.no_wrap = True
    for pool in pools[:MAX_ROWS]:
        claim = [_claim(pool)] if claims else []
        rows.add_row(*_agreement_cells(pool, bits=bits), *claim)
    yield rows
    yield from left_out(MAX_ROWS, len(pools), what)
    if bits and what == "pairs":
        yield (
            "Acc, epoch-1 loss: how far apart. First step, first epoch: where a loss, or the "
            f"weights, first differ in any bit. By step {CLOSE_STEP}: largest relative difference "
            "of a loss until there. Images: share of test images predicted differently."
        )


def _agreement_cells(pool: Pool, *, bits: bool) -> list[str]:
    figures, agreed = pool.spread, pool.agreement
    many = len(pool.members) > MAX_VALUES
    cells = [
        f"{len(pool.members):,} runs" if many else ", ".join(str(i + 1) for i in pool.members),
        figure(figures.max_difference, 2),
        figure(figures.correlations.mean, 5, UNDEFINED),
        figure(figures.first_loss_gap, 4),
    ]
    if bits and (agreed is None or agreed.num_steps is None):
        cells += ["", "", "", ""]
    elif bits and agreed is not None:
        cells += [
            f"{agreed.first_step.step:,}" if agreed.first_step else "none",
            f"{agreed.first_epoch}" if agreed.first_epoch else "none",
            f"{agreed.closeness.difference:.1e}" if agreed.closeness else "",
            figure(agreed.predictions_percent, 2),
        ]
    return cells


def _claim(pool: Pool) -> str:
    agreed = pool.agreement
    if agreed is None:
        return "not comparable"
    if agreed.bitwise:
        return f"bitwise, {agreed.num_epochs} epoch{'s' if agreed.num_epochs > 1 else ''}"
    if agreed.digest is not None:
        return "weights bitwise"
    if agreed.closeness is None:
        return "figures bitwise" if agreed.figures_equal else ""
    return "close" if agreed.closeness.close else "not close"
