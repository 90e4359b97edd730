"""What tables and lines look like: one style, at most 100 columns, plain where nobody watches."""

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 100


def console(*, stderr: bool = False) -> Console:
    """Return a console of at most 100 columns that prints values as they are, uncoloured."""
    screen = Console(stderr=stderr, highlight=False, markup=False)
    screen.width = min(screen.width, WIDTH) if screen.is_terminal else WIDTH
    return screen


def table(*headers: str, title: str | None = None) -> Table:
    """Return an empty table; a header that begins with ">" makes a right-aligned column."""
    result = Table(
        title=title,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    for header in headers:
        numeric = header.startswith(">")
        result.add_column(
            header.removeprefix(">"), justify="right" if numeric else "left", overflow="fold"
        )
    return result
