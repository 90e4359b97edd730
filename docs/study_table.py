"""The README's study: the article's design and an ablation, on the instruction sets of one machine.

    python -m docs.study_table RUN_FOLDER DATE

reads the studies RUN_FOLDER/article and RUN_FOLDER/ablation, keeps what they say in
docs/study.json, draws two figures beside it and puts the tables into the README, between its marks.
"""

import textwrap
from collections import defaultdict
from itertools import product
from typing import Any

from docs.readme import HERE, LEVELS, NAMES, check_comparable, main, provenance
from parity.comparison import Comparison, compare
from parity.report.figures import draw
from parity.results import Result
from parity.tables.crossed import scaled

FIGURES = HERE / "study.json"
BEGIN, END = "<!-- table: docs/study.json -->\n", "<!-- end of study -->"

DRAWN = ("accuracy", "variance")
"""The report's figures that the README shows, of the ablation."""

PLACES = tuple(product(NAMES, LEVELS))


def study(results: list[Result], name: str) -> list[Result]:
    """Return the runs of one of the studies."""
    return [r for r in results if r.path.parent.name == name]


def ablation(results: list[Result]) -> Comparison:
    """Return the comparison of the ablation's runs."""
    return compare(study(results, "ablation"), threshold=70.0)


def measure(results: list[Result]) -> dict[str, Any]:
    """Return what the tables say of the runs, and what they ran on, as JSON values."""
    (layout,) = ablation(results).crossed
    article = study(results, "article")
    check_comparable(article)
    cells: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for r in article:
        what = r.arithmetic if r.optimizer == "adam" else f"{r.arithmetic} {r.optimizer}"
        level = f"cpu:{r.environment['instruction_set_allowed']}"
        cells[what][f"{r.framework} {level}"].append(r)
    first = results[0]
    return {
        "what": {
            name: first.configuration[name]
            for name in ("dataset", "train_size", "test_size", "epochs", "batch_size")
        },
        "machine": {name: first.environment[name] for name in ("cpu", "threads", "python")},
        **provenance(results),
        "runs": {name: len(study(results, name)) for name in ("article", "ablation")},
        "article": {
            what: {place: _cell(runs) for place, runs in places.items()}
            for what, places in sorted(cells.items())
        },
        "ablation": {
            quantity.name: {
                part.name: {
                    "size": scaled(quantity, part.variance),
                    "low": scaled(quantity, part.low),
                    "high": scaled(quantity, part.high),
                }
                for part in quantity.parts
            }
            for quantity in layout.measures
        },
    }


def _cell(runs: list[Result]) -> dict[str, Any]:
    finals = [float(r.curves.test_accuracy[-1]) for r in runs]
    return {
        "runs": len(runs),
        "different": len({r.digests for r in runs}),
        "accuracy_percent": sum(finals) / len(finals),
    }


def render(figures: dict[str, Any], date: str) -> str:
    """Return the tables in Markdown, with their provenance below."""
    what, runs, versions = figures["what"], figures["runs"], figures["versions"]
    head = [f"{NAMES[framework]}, {LEVELS[level]}" for framework, level in PLACES]
    lines = ["| accuracy, % (runs: different ones) | " + " | ".join(head) + " |"]
    lines.append("|---" * (1 + len(PLACES)) + "|")
    for name, places in figures["article"].items():
        cells = [_shown(places.get(" ".join(place))) for place in PLACES]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    note = (
        f"The `article` design: {runs['article']} runs of {what['epochs']} epochs on "
        f"{what['train_size']:,} CIFAR-10 images, one seed. Runs that differ in workers, in "
        "deterministic algorithms or in nothing end in the same bits. A CPU has no TF32 and nothing"
        " to tune: what it lacks is left out as not applicable."
    )
    lines += [
        "",
        *textwrap.wrap(note, 98),
        "",
        "| ablation, accuracy | pp | 95 % |",
        "|---|---|---|",
    ]
    for name, part in figures["ablation"]["accuracy"].items():
        lines.append(f"| {name} | {part['size']:.2f} | {part['low']:.2f} to {part['high']:.2f} |")
    note = (
        f"The `ablation` design: {runs['ablation']} runs, framework x platform x seed; what each "
        "adds to the spread of final accuracy, as a standard deviation. Both: "
        f"{figures['machine']['cpu']} with AVX-512, {figures['machine']['threads']} thread a run, "
        f"tested on {what['test_size']:,} images, jax {versions['jax']}, torch "
        f"{versions['torch']}, {date}."
    )
    lines += ["", *textwrap.wrap(note, 98), ""]
    lines += [f"![{name} in the ablation](docs/study-{name}.svg)\n" for name in DRAWN]
    return "\n".join(lines)


def _shown(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    return f"{cell['accuracy_percent']:.1f} ({cell['runs']}: {cell['different']})"


if __name__ == "__main__":
    results = main(measure, render, FIGURES, (BEGIN, END))
    for drawn in draw(ablation(results)):
        if drawn.name in DRAWN:
            (HERE / f"study-{drawn.name}.svg").write_bytes(drawn.svg)
