"""What the comparison's tables yield, as plain blocks that a page can lay out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class Block:
    """A heading, a paragraph or a table."""

    kind: str
    """heading, alarm, subheading, paragraph, indented or table."""
    text: str = ""
    headers: tuple[str, ...] = ()
    right: tuple[bool, ...] = ()
    """Which columns are numbers, aligned to the right."""
    rows: tuple[tuple[str, ...], ...] = ()


_TEXTS = {"bold": "heading", "bold red": "alarm", "italic": "subheading"}


def blocks(parts: Iterable[RenderableType]) -> Iterator[Block]:
    """Yield the parts of a text report as blocks."""
    for part in parts:
        match part:
            case Table():
                columns = part.columns
                cells = [[str(cell) for cell in column.cells] for column in columns]
                yield Block(
                    "table",
                    str(part.title or ""),
                    tuple(str(column.header) for column in columns),
                    tuple(column.justify == "right" for column in columns),
                    tuple(zip(*cells, strict=True)),
                )
            case Text():
                yield Block(_TEXTS.get(str(part.style), "paragraph"), part.plain.strip())
            case Padding():
                yield Block("indented", _prose(part.renderable))
            case _:
                yield Block("paragraph", _prose(part))


def _prose(text: object) -> str:
    # The command's flag is here the file beside the page.
    return str(text).strip().replace("in --json", "in comparison.json")
