"""The README's tables of speed: both implementations, their peers, targets and growth.

    python -m benchmarks --out docs/speed.json
    python -m docs.speed_table

The second command puts what docs/speed.json says into the README, between its two marks.
"""

import json
import textwrap
from typing import Any

from benchmarks import table
from docs.readme import HERE, put

FIGURES = HERE / "speed.json"
BEGIN, END = "<!-- table: docs/speed.json -->\n", "<!-- end of speed table -->"


def render(figures: dict[str, Any], date: str) -> str:
    """Return the tables in Markdown, with their provenance below."""
    assert not figures["quick"], "the figures of --quick mean nothing"
    made = (table.cases_table, table.targets_table, table.growth_table)
    parts = [_markdown(of(figures)) for of in made]
    text = " ".join(table.notes(figures | {"date": date}))
    return "\n\n".join([*parts, "\n".join(textwrap.wrap(text, 98))]) + "\n"


def _markdown(made: table.Table) -> str:
    head = [header.removeprefix(">") for header in made.headers]
    rule = ["---:" if header.startswith(">") else "---" for header in made.headers]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *made.rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


if __name__ == "__main__":
    figures = json.loads(FIGURES.read_text())
    put(render(figures, figures["date"]), (BEGIN, END))
