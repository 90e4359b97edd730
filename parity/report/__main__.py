"""Write the report of some runs: python -m parity.report PATH... --out DIR [--published]."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.command import user_errors
from parity.compare import compared
from parity.errors import UserError
from parity.files import write_atomically

if TYPE_CHECKING:
    from parity.comparison import Comparison
    from parity.report.series import Rows


def report(
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH...")],
    *,
    out: Path,
    threshold: float = 70.0,
    published: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Write the report of some runs: one HTML page, its figures, and the numbers behind them.

    Args:
        paths: Run folders, the article's result files, or folders of these, at any depth.
        out: Folder of report.html, comparison.json, and PNG, SVG and CSV of every figure.
        threshold: Report the first epoch with this test accuracy, percent.
        published: Also set the runs beside the article's devices.
    """
    print(write(compared(paths, threshold=threshold, published=published), out))


def write(comparison: "Comparison", folder: Path) -> Path:
    """Write the page, the figures and the comparison, each atomically; return the page's path.

    Raises:
        UserError: If the folder cannot be made or written.
    """
    from parity.comparison_json import as_json
    from parity.report.figures import draw
    from parity.report.page import render

    figures = list(draw(comparison))
    texts: dict[str, Callable[[], bytes]] = {
        "comparison.json": lambda: f"{as_json(comparison)}\n".encode(),
        **{f"{d.name}.csv": lambda d=d: as_csv(d.rows) for d in figures},
    }
    for drawn in figures:
        texts[f"{drawn.name}.png"] = lambda d=drawn: d.png
        texts[f"{drawn.name}.svg"] = lambda d=drawn: d.svg
    page = "report.html"  # the last: it names the others
    texts[page] = lambda: render(comparison, figures).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in texts.items():
            write_atomically(folder / name, lambda file, content=content: file.write(content()))
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}). Choose another --out."
        ) from None
    return folder / page


def as_csv(rows: "Rows") -> bytes:
    """Return rows as a CSV file with a header."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def main() -> None:
    """Run the command line."""
    with user_errors():
        tyro.cli(report, prog="python -m parity.report")


if __name__ == "__main__":
    main()
