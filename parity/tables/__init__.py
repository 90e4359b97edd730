"""How a comparison reads: sentences and short tables, from what was read to what differs."""

import io
from collections.abc import Iterator

from rich.console import Console, RenderableType

from parity.comparison import Comparison
from parity.console import WIDTH
from parity.tables.agreement import pairs, verdict
from parity.tables.article import article
from parity.tables.differences import effects, what_differs
from parity.tables.groups import groups
from parity.tables.reading import warnings, what_was_read


def render(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the parts of the report, in the order in which they are read."""
    parts = (what_was_read, warnings, verdict, groups, article, pairs, effects, what_differs)
    for part in parts:
        yield from part(comparison)


def as_text(comparison: Comparison) -> str:
    """Return the report as it stands in a file: no line over 100 columns, no escape sequences."""
    # No colour system, so that FORCE_COLOR in the environment changes nothing.
    page = Console(
        file=io.StringIO(), width=WIDTH, highlight=False, markup=False, color_system=None
    )
    with page.capture() as capture:
        for part in render(comparison):
            page.print(part)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
