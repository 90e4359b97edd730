"""The README's proof: digests of the weights, float32 against exact, everywhere a run was made.

    python -m docs.exact_table RUN_FOLDER DATE

reads the runs in a folder, keeps the digests of all their epochs in docs/exact.json and puts the
table of the last ones into the README, between its two marks.
"""

import textwrap
from itertools import product
from typing import Any

from docs.readme import HERE, LEVELS, NAMES, check_comparable, main, provenance
from parity.results import Result

FIGURES = HERE / "exact.json"
BEGIN, END = "<!-- table: docs/exact.json -->\n", "<!-- end of exact table -->"

COLUMNS = {
    "float32, Adam": ("float32", "adam"),
    "exact, Adam": ("exact", "adam"),
    "exact, RMSprop": ("exact", "rmsprop"),
    "exact, SGD": ("exact", "sgd"),
}


def measure(results: list[Result]) -> dict[str, Any]:
    """Return the digests of the runs, and what they ran on, as JSON values."""
    check_comparable(results)
    first = results[0]
    runs: dict[tuple[Any, ...], tuple[str, ...]] = {}
    for r in results:
        setting = r.arithmetic, r.optimizer
        assert setting in COLUMNS.values()
        assert r.digests is not None
        runs[*setting, r.framework, r.platform, r.environment["threads"]] = r.digests
    digests = {
        name: {
            " ".join(map(str, where)): list(runs[*setting, *where])
            for where in product(NAMES, LEVELS, (1, 2))
            if (*setting, *where) in runs
        }
        for name, setting in COLUMNS.items()
    }
    return {
        "what": {
            name: first.configuration[name]
            for name in ("dataset", "train_size", "epochs", "batch_size")
        }
        | {"seed": first.seed},
        "machine": {name: first.environment[name] for name in ("cpu", "python")},
        **provenance(results),
        "engines": sorted({r.facts["engine"] for r in results if r.arithmetic == "exact"}),
        "digests": digests,
    }


def render(figures: dict[str, Any], date: str) -> str:
    """Return the table in Markdown, with its provenance below."""
    what, digests = figures["what"], figures["digests"]
    lines = ["| weights at the end | " + " | ".join(COLUMNS) + " |", "|---" * 5 + "|"]
    for where in digests["exact, Adam"]:
        framework, level, threads = where.split()
        cells = [
            f"`{digests[column][where][-1][:8]}`" if where in digests[column] else ""
            for column in COLUMNS
        ]
        name = f"{NAMES[framework]}, {LEVELS[level]}, {threads} thread{'s' * (threads != '1')}"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    distinct = [str(len(set(map(tuple, digests[column].values())))) for column in COLUMNS]
    lines.append("| **different ones** | **" + "** | **".join(distinct) + "** |")
    steps = what["epochs"] * -(-what["train_size"] // what["batch_size"])
    versions = figures["versions"]
    note = (
        f"The first eight digits of the SHA-256 of all weights after {what['epochs']} epochs on "
        f"{what['train_size']:,} CIFAR-10 images ({steps} steps, the last of an epoch with "
        f"{what['train_size'] % what['batch_size']} images), seed {what['seed']}; the last row "
        f"counts trajectories that differ at any epoch. {figures['machine']['cpu']}, jax "
        f"{versions['jax']}, torch {versions['torch']}, {date}. It has not run on a GPU yet; "
        "`python -m benchmarks.gpu_proof` does it."
    )
    return "\n".join([*lines, "", *textwrap.wrap(note, 98), ""])


if __name__ == "__main__":
    main(measure, render, FIGURES, (BEGIN, END))
