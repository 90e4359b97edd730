"""What the README's tables have in common: runs that belong together, and where a table goes."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parity.results import Result, read

HERE = Path(__file__).parent
README = HERE.parent / "README.md"

NAMES = {"jax": "JAX", "torch": "PyTorch"}
LEVELS = {"cpu:sse4": "SSE4", "cpu:avx2": "AVX2", "cpu:avx512": "AVX-512"}


def check_comparable(results: Sequence[Result]) -> None:
    """See that all runs had one data set, stream and start."""
    assert len({tuple(sorted((r.fingerprints or {}).items())) for r in results}) == 1


def provenance(results: Sequence[Result]) -> dict[str, Any]:
    """Return the versions and commits of finished runs."""
    assert all(r.finished for r in results)
    return {
        "versions": {
            name.removeprefix("versions."): value
            for r in results
            for name, value in sorted(r.environment.items())
            if name.startswith("versions.")
        },
        "commit": sorted({r.environment["git_commit"] for r in results}),
    }


def main(
    measure: Callable[[list[Result]], dict[str, Any]],
    render: Callable[[dict[str, Any], str], str],
    figures: Path,
    marks: tuple[str, str],
) -> list[Result]:
    """Run a table's command line: measure, keep the figures, put the table between its marks.

    Returns:
        The results measured.
    """
    if len(sys.argv) != 3:
        sys.exit(f"usage: python -m docs.{Path(sys.argv[0]).stem} RUN_FOLDER DATE")
    folder, date = Path(sys.argv[1]), sys.argv[2]
    results = read([folder]).results
    measured = measure(results) | {"date": date}
    figures.write_text(json.dumps(measured, indent=1) + "\n")
    put(render(measured, date), marks)
    return results


def put(text: str, marks: tuple[str, str]) -> None:
    """Put a table into the README, between its marks."""
    begin, end = marks
    head, rest = README.read_text().split(begin)
    _, tail = rest.split(end)
    README.write_text(head + begin + text + end + tail)
