"""How numbers, names and runs are written in the tables."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from parity.console import table
from parity.provenance import Difference, Value

MAX_ROWS = 20
"""Rows of a table; more are counted, and stand in the JSON document."""

MAX_VALUES = 4
"""Entries of a list within the text."""

SIGNS = {"loss gap": "loss", "fit": "fit", "correlation": "r"}
"""The article's danger signs, in a word short enough for a column."""

UNDEFINED = "undefined"
"""A correlation with a constant curve, or of a single epoch."""


def numbers(members: Sequence[int]) -> str:
    """Return positions as the numbers that the tables show, from 1, at most eight ranges.

    >>> numbers([0, 1, 2, 6])
    '1-3, 7'
    """
    ranges: list[str] = []
    for _, run in groupby(enumerate(members), key=lambda item: item[1] - item[0]):
        positions = [member + 1 for _, member in run]
        first, last = positions[0], positions[-1]
        ranges.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(ranges[:8]) + (", ..." if len(ranges) > 8 else "")


def letters(position: int) -> str:
    """Return the name of a group: A to Z, then AA, AB, ...

    >>> letters(0), letters(25), letters(26)
    ('A', 'Z', 'AA')
    """
    higher, last = divmod(position, 26)
    return (letters(higher - 1) if higher else "") + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[last]


def short(value: Any, width: int = 40) -> str:
    """Return a value in so many characters; the middle of a longer one is left out."""
    text = "-" if value is None else str(value)
    if len(text) <= width:
        return text
    head = width // 3
    return f"{text[:head]}…{text[head + 1 - width :]}"


def heading(text: str) -> Text:
    """Return the title of a part of the report."""
    return Text(f"\n{text}", style="bold")


def indented(text: str) -> Padding:
    """Return a paragraph whose every line begins two columns to the right."""
    return Padding(text, (0, 0, 0, 2))


def narrow_table(*headers: str) -> Table:
    """Return a table in the house's style with narrower gaps; some rows here are long."""
    rows = table(*headers)
    rows.padding = (0, 1, 0, 0)
    return rows


def runs(members: Sequence[int]) -> str:
    """Return "run 3" or "runs 1-3, 7"."""
    return f"run{'s' if len(members) > 1 else ''} {numbers(members)}"


def figure(value: float | None, digits: int, missing: str = "") -> str:
    """Return a number with so many decimals, or `missing` where there is none."""
    return missing if value is None else f"{value:.{digits}f}"


def epoch_in_words(epoch: int | None) -> str:
    """Return when a threshold was reached."""
    return f"epoch {epoch}" if epoch else "never"


def left_out(shown: int, total: int, what: str) -> Iterator[RenderableType]:
    """Yield how many were not shown, if any."""
    if total > shown:
        yield f"{total - shown:,} more {what} in --json."


def values_in_words(difference: Difference, *, counted: bool = False) -> str:
    """Return the values of a field, each with its runs, or with their number where `counted`."""
    values = difference.values
    if len(values) > MAX_VALUES and all(len(value.members) == 1 for value in values):
        return f"one for each run: {value_in_words(values[0])}, ..."
    room = len(values) if len(values) <= 2 * MAX_VALUES else MAX_VALUES
    if counted:
        values = tuple(sorted(values, key=lambda value: -len(value.members)))
        shown = [f"{value_in_words(v)} ({len(v.members):,})" for v in values[:room]]
    else:
        shown = [f"{value_in_words(v)} ({runs(v.members)})" for v in values[:room]]
    more = [f"{len(values) - room:,} more"] if len(values) > room else []
    return ", ".join(shown + more)


def value_in_words(value: Value) -> str:
    """Return a value short; of a SHA-256 the first twelve digits."""
    text = value.value
    if isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return text[:12]
    return short(text)
