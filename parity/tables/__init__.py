"""How a comparison reads: sentences and short tables, from what was read to what differs."""

import io
from collections.abc import Iterator

from rich.console import Console, RenderableType

from parity.comparison import Comparison
from parity.console import WIDTH
from parity.tables.agreement import pairs, verdict
from parity.tables.article import article
from parity.tables.audit import audit
from parity.tables.crossed import crossed
from parity.tables.differences import effects, what_differs
from parity.tables.groups import groups
from parity.tables.published import published
from parity.tables.reading import warnings, what_was_read


def render(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the parts of the report, in the order in which they are read."""
    yield from what_was_read(comparison)
    yield from warnings(comparison)
    yield from verdict(comparison)
    yield from audit(comparison)
    yield from crossed(comparison)
    yield from groups(comparison)
    yield from published(comparison)
    yield from article(comparison)
    yield from pairs(comparison)
    yield from effects(comparison)
    yield from what_differs(comparison)


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
