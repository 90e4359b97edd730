"""Compare runs: groups, verdict, pairs, and what differs.

python -m parity.compare PATH... [--by FIELD...] [--threshold 70] [--published] [--out DIR] [--json]
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.command import user_errors
from parity.errors import UserError
from parity.files import write_atomically

if TYPE_CHECKING:
    from parity.comparison import Comparison


def compare(
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH...")],
    *,
    by: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD...")] = (),
    threshold: float = 70.0,
    published: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    out: Path | None = None,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Compare runs: groups, verdict, pairs, and what differs.

    Args:
        paths: Run folders, the article's result files, or folders of these, at any depth.
        by: Fields to group by, such as framework platform seed: any setting or any field of the
            environment. Default: treatments that differ; for the article's files, its groups.
        threshold: Report the first epoch with this test accuracy, percent.
        published: Set the groups beside the article's devices, whose published figures come with
            this package.
        out: Also write comparison.json and comparison.txt into this folder.
        json: Print one JSON document at full precision, and nothing else.
    """
    comparison = compared(paths, by=by, threshold=threshold, published=published)
    # Before anything is printed: a reader that goes away (head, less) ends the command.
    written = () if out is None else write(out, comparison)
    if json:
        from parity.comparison_json import as_json

        print(as_json(comparison))
    else:
        from parity.console import console
        from parity.tables import render

        screen = console()
        for part in render(comparison):
            screen.print(part)
    for path in written:
        print(path, file=sys.stderr if json else sys.stdout)


def compared(
    paths: tuple[Path, ...], *, by: tuple[str, ...] = (), threshold: float, published: bool
) -> "Comparison":
    """Return the comparison of what lies at paths; see `compare`. Tells on stderr what is skipped.

    Raises:
        UserError: If an argument is wrong, or nothing can be read.
    """
    # Not at the top: --help need not wait for NumPy.
    from parity import comparison as comparing
    from parity import results

    if not paths:
        first = " Put them before --by, whose list takes all that follows." if by else ""
        raise UserError(
            f"No path given. Name run folders, result files, or folders of these.{first}"
        )
    if not 0 <= threshold <= 100:
        raise UserError(f"--threshold is {threshold:g}, but must be a percentage, 0 to 100.")
    reading = results.read(paths)
    for message in reading.skipped:
        print(f"warning: skipped: {message}", file=sys.stderr)
    article = None
    if published:
        if all(result.kind == "article" for result in reading.results):
            raise UserError(
                "--published sets runs of this project beside the article's devices, but only the "
                "article's own files are given. Give run folders too, or leave --published out."
            )
        from parity.article.published import published as published_files

        article = published_files()
    return comparing.compare(reading.results, by=by, threshold=threshold, published=article)


def write(folder: Path, comparison: "Comparison") -> tuple[Path, Path]:
    """Write comparison.json and comparison.txt, each atomically, and return their paths.

    Raises:
        UserError: If the folder cannot be made or written.
    """
    from parity.comparison_json import as_json
    from parity.tables import as_text

    texts = {"comparison.json": as_json(comparison) + "\n", "comparison.txt": as_text(comparison)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_atomically(folder / name, lambda file, text=text: file.write(text.encode()))
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error.strerror}). Choose another --out."
        ) from None
    return folder / "comparison.json", folder / "comparison.txt"


def main() -> None:
    """Run the command line."""
    with user_errors():
        tyro.cli(compare, prog="python -m parity.compare")


if __name__ == "__main__":
    main()
