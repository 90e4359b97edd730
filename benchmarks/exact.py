"""What exact arithmetic costs: a training step in float32 and exact, side by side.

    python -m benchmarks.exact [--device cpu] [--threads 1] [--rounds 15] [--tf32] [--out FILE]

The result is the ratio to the same framework's float32, by the ruler of benchmarks.ruler. Gop/s are
the operations of a step's products, which a large matrix product of that type does at the rate in
the last column.
"""

import json
import os
from pathlib import Path
from typing import Any

import tyro

from benchmarks import ruler
from benchmarks.floor import operations
from parity import platforms
from parity.command import user_errors, writing
from parity.console import console, table
from parity.files import write_atomically

MULTIPLYING = {"float32": 1, "tf32": 1, "exact float64": 1, "exact int8": 9}
"""Products of the hardware for one of the network, by case."""


def main(
    *,
    device: str = "cpu",
    threads: int = 1,
    rounds: int = 15,
    batch_size: int = 128,
    tf32: bool = False,
    out: Path | None = None,
) -> None:
    """Time a training step, float32 against exact, and print the ratios.

    Args:
        device: Where to compute, as the train commands take it.
        threads: CPU threads of each case.
        rounds: Steps of each case, one after the other's.
        batch_size: Images of a step.
        tf32: Also time float32 whose products may be rounded to TF32.
        out: Also write all times, with what they were measured on, into this JSON file.
    """
    settings = {"float32": {"arithmetic": "float32"}}
    if tf32:
        settings["tf32"] = {"arithmetic": "float32"}
    for engine in ("float64", "int8"):
        settings[f"exact {engine}"] = {"arithmetic": "exact", "engine": engine}
    # Digits have the size of CIFAR-10's images and need no download.
    common = {"device": device, "threads": threads, "batch_size": batch_size, "dataset": "digits"}
    requests = {
        f"{framework} {name}": {"work": "steps", "subject": "ours", "framework": framework}
        | {"config": common | values, "tf32": name == "tf32"}
        for framework in ("torch", "jax")
        for name, values in settings.items()
    }
    with ruler.cases(requests) as cases:
        ruler.interleave(cases, rounds)
    report = {
        "machine": platforms.fingerprint(platforms.parse(device, "torch"), threads, ("numpy",)),
        "date": ruler.today(),
        "load": os.getloadavg()[0],
        "batch_size": batch_size,
        "operations": operations(batch_size),
        "cases": [
            {
                "framework": case.request["framework"],
                "case": case.name.partition(" ")[2],
                "step_ms": case.values("step_ms"),
                "gop_s": case.values("gop_s"),
                "environment": case.environment,
            }
            for case in cases
        ],
    }
    show(report, threads)
    if out is not None:
        text = json.dumps(report, indent=1) + "\n"
        with writing(out):
            write_atomically(out, lambda file: file.write(text.encode()))


def show(report: dict[str, Any], threads: int) -> None:
    """Print the table."""
    headers = ("framework", "case", ">step, ms", ">min to max", ">of float32", ">Gop/s", ">of")
    rows = table(*headers)
    steps = {(case["framework"], case["case"]): case["step_ms"] for case in report["cases"]}
    for case in report["cases"]:
        framework, name = case["framework"], case["case"]
        times = ruler.spread(case["step_ms"])
        rate = MULTIPLYING[name] * report["operations"] / times.median / 1e6
        rows.add_row(
            ruler.NAMES[framework],
            name,
            f"{times.median:.1f}",
            f"{times.least:.1f} to {times.largest:.1f}",
            f"{ruler.ratio(case['step_ms'], steps[framework, 'float32']).median:.2f}",
            f"{rate:.0f}",
            f"{ruler.spread(case['gop_s']).median:.0f}",
        )
    screen = console()
    screen.print(rows)
    screen.print(
        f"{report['cases'][0]['environment']['device']}, {threads} threads, batch "
        f"{report['batch_size']}, medians of {len(report['cases'][0]['step_ms'])} interleaved "
        f"steps, load {report['load']:.1f}. Gop/s: operations of the hardware in the step's "
        "products, nine times as many for int8; of: those of a large matrix product, in float64 "
        "for exact."
    )


if __name__ == "__main__":
    with user_errors():
        tyro.cli(main, prog="python -m benchmarks.exact")
