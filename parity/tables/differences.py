"""What differs between the runs, and what one setting does to the accuracy."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from parity.comparison import Comparison
from parity.tables.notation import (
    MAX_ROWS,
    heading,
    left_out,
    narrow_table,
    short,
    values_in_words,
)

MAX_NUMBERED = 12
"""With more results than that, values are shown with a count instead of the runs' numbers."""

ROLES = {
    "meaning": "makes the comparison meaningless",
    "seed": "follows from the seed; comparable within a seed",
    "treatment": "treatments, presumably varied on purpose",
    "machine": "machine, should not matter",
}


def effects(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield what single settings do to the accuracy, where more than one match shows it."""
    found = [effect for effect in comparison.effects if effect.num_matches > 1]
    if not found:
        return
    yield heading("Effect of one setting on final accuracy, every other setting equal")
    rows = narrow_table(
        *("setting", "difference of", ">matches", ">mean, pp", ">range, pp", ">plain means, pp")
    )
    for effect in found[:MAX_ROWS]:
        rows.add_row(
            effect.field,
            f"{short(effect.first, 20)} - {short(effect.second, 20)}",
            str(effect.num_matches),
            f"{effect.mean_difference:+.3f}",
            f"{effect.min_difference:+.2f} to {effect.max_difference:+.2f}",
            f"{effect.pooled_difference:+.3f}",
        )
    yield rows
    yield "Plain means: of all runs with each value, which mixes in the other settings."
    yield from left_out(MAX_ROWS, len(found), "effects")


def what_differs(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the fields in which runs differ, by what that means."""
    if len(comparison.results) < 2:
        return
    yield heading("What differs")
    if not comparison.differences:
        yield "Nothing that is recorded: settings, fingerprints and environment agree."
        return
    counted = len(comparison.results) > MAX_NUMBERED
    for role, title in ROLES.items():
        chosen = [d for d in comparison.differences if d.role == role]
        if not chosen:
            continue
        yield Text(title, style="italic")
        rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        rows.add_column(width=28)
        rows.add_column(overflow="fold")
        for difference in chosen[:MAX_ROWS]:
            rows.add_row(
                f"  {short(difference.field, 26)}", values_in_words(difference, counted=counted)
            )
        yield rows
        yield from left_out(MAX_ROWS, len(chosen), "fields")
