"""The README's table: one start, three optimizers, two frameworks, two instruction sets.

    python -m docs.table RUN_FOLDER DATE

measures the runs in a folder, keeps the figures in docs/cifar10.json and puts the table into the
README, between its two marks.
"""

import textwrap
from typing import Any

from docs.readme import HERE, NAMES, check_comparable, main, provenance
from parity import bits
from parity.results import Result

FIGURES = HERE / "cifar10.json"
BEGIN, END = "<!-- table: docs/cifar10.json -->\n", "<!-- end of table -->"

PAIRS = {
    "JAX against PyTorch": (("jax", "cpu"), ("torch", "cpu")),
    "PyTorch, all against AVX2": (("torch", "cpu"), ("torch", "cpu:avx2")),
    "JAX, all against AVX2": (("jax", "cpu"), ("jax", "cpu:avx2")),
}


def measure(results: list[Result]) -> dict[str, Any]:
    """Return what the table says of the runs, and what they ran on, as JSON values."""
    check_comparable(results)
    optimizers = sorted({r.optimizer for r in results})
    runs = {(r.optimizer, r.framework, r.platform): r for r in results}
    first = results[0]
    return {
        "what": {
            name: first.configuration[name]
            for name in ("dataset", "train_size", "test_size", "epochs", "batch_size", "lr")
        }
        | {"seed": first.seed, "arithmetic": first.arithmetic},
        "machine": {name: first.environment[name] for name in ("cpu", "threads", "python")},
        **provenance(results),
        "accuracy_percent": {
            optimizer: {
                f"{framework} {platform}": runs[optimizer, framework, platform]
                .curves.test_accuracy[-1]
                .item()
                for framework in NAMES
                for platform in ("cpu", "cpu:avx2")
            }
            for optimizer in optimizers
        },
        "pairs": {
            optimizer: {
                name: _pair(runs[optimizer, *a], runs[optimizer, *b])
                for name, (a, b) in PAIRS.items()
            }
            for optimizer in optimizers
        },
    }


def _pair(a: Result, b: Result) -> dict[str, Any]:
    predictions = [r.load_predictions() for r in (a, b)]
    found = bits.agreement([a, b], predictions)
    return {
        "bitwise": found.bitwise,
        "first_step": None if found.first_step is None else found.first_step.step,
        "predictions_percent": found.predictions_percent,
    }


def render(figures: dict[str, Any], date: str) -> str:
    """Return the table in Markdown, with its provenance below."""
    what, machine = figures["what"], figures["machine"]
    lines = [
        "| optimizer | JAX, % | JAX AVX2, % | PyTorch, % | PyTorch AVX2, % |",
        "|---|---|---|---|---|",
    ]
    for optimizer, accuracy in figures["accuracy_percent"].items():
        lines.append(f"| {optimizer} | " + " | ".join(f"{x:.2f}" for x in accuracy.values()) + " |")
    lines += ["", "| where they part | " + " | ".join(PAIRS) + " |"]
    lines.append("|---" * (1 + len(PAIRS)) + "|")
    for optimizer, pairs in figures["pairs"].items():
        cells = [
            "bitwise identical"
            if pair["bitwise"]
            else f"loss at step {pair['first_step']}, {pair['predictions_percent']:.1f} % of images"
            for pair in pairs.values()
        ]
        lines.append(f"| {optimizer} | " + " | ".join(cells) + " |")
    versions = figures["versions"]
    note = (
        f"Test accuracy after {what['epochs']} epochs on {what['train_size']:,} CIFAR-10 images, "
        f"{what['arithmetic']}, seed {what['seed']}, one run each from equal weights, batches and "
        "masks; the first step whose loss differs in any bit, and the share of test images that "
        f"are predicted differently at the end. {machine['cpu']} with AVX-512, "
        f"{machine['threads']} threads, jax {versions['jax']}, flax {versions['flax']}, "
        f"torch {versions['torch']}, {date}. The images are a copy re-encoded as JPEG, so "
        "accuracies lie near those on the original files, not at them."
    )
    return "\n".join([*lines, "", *textwrap.wrap(note, 98), ""])


if __name__ == "__main__":
    main(measure, render, FIGURES, (BEGIN, END))
