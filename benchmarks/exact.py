"""What exact arithmetic costs: a training step in float32 and exact, side by side.

    python -m benchmarks.exact [--device cpu] [--threads 1] [--rounds 15] [--tf32] [--out FILE]

Every case is a process of its own, and all take turns, so that a noisy machine is noisy for all
alike: the result is the ratio to the same framework's float32. Floor: the operations of the step's
matrix products, over the rate at which the framework multiplies large matrices of that type here.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import tyro

from parity import platforms
from parity.architecture import CHANNELS, NUM_CLASSES, NUM_FEATURES, NUM_HIDDEN
from parity.command import user_errors
from parity.console import console, table
from parity.files import write_atomically

NAMES = {"jax": "JAX", "torch": "PyTorch"}
MULTIPLYING = {"float32": 1, "tf32": 1, "exact float64": 1, "exact int8": 9}
"""Products of the hardware for one of the network, by case."""


def step_operations(batch_size: int) -> int:
    """Return the multiplications and additions of a step's products, forward and both gradients."""
    forward, first = 0, 0
    for layer, (inputs, outputs) in enumerate(pairwise(CHANNELS)):
        size = 32 >> layer
        forward += 2 * 9 * inputs * outputs * size * size
        first = first or forward
    forward += 2 * (NUM_FEATURES * NUM_HIDDEN + NUM_HIDDEN * NUM_CLASSES)
    return batch_size * (3 * forward - first)  # nobody asks for the images' gradient


class Case:
    """A process that does steps when asked."""

    def __init__(self, framework: platforms.Framework, name: str, config: dict[str, Any]) -> None:
        self.framework, self.name = framework, name
        self.step_ms: list[float] = []
        request = {"framework": framework, "config": config, "tf32": name == "tf32"}
        platform = platforms.parse(config["device"], framework)
        ours = platforms.variables(
            platform, config["threads"], platforms.Kernels(tf32=name == "tf32")
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps(request)],
            env={n: v for n, v in (os.environ | ours).items() if v is not None},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.environment = json.loads(self._line())

    def step(self) -> None:
        """Do a step and keep its time."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.step_ms.append(float(self._line()))
        time.sleep(0.05)  # until the case's threads have ceased to spin

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self.framework} {self.name} ended with status {self._process.wait()}.")
        return line

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


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
    common = {"device": device, "threads": threads, "batch_size": batch_size}
    cases = [
        Case(framework, name, common | values)
        for framework in ("torch", "jax")
        for name, values in settings.items()
    ]
    for _ in range(rounds):
        for case in cases:
            case.step()
    for case in cases:
        case.close()
    report = {
        "machine": platforms.fingerprint(platforms.parse(device, "torch"), threads, ("numpy",)),
        "date": time.strftime("%Y-%m-%d"),
        "load": os.getloadavg()[0],
        "batch_size": batch_size,
        "operations": step_operations(batch_size),
        "cases": [
            {
                "framework": case.framework,
                "case": case.name,
                "step_ms": case.step_ms,
                "environment": case.environment,
            }
            for case in cases
        ],
    }
    show(report, threads)
    if out is not None:
        text = json.dumps(report, indent=1) + "\n"
        write_atomically(out, lambda file: file.write(text.encode()))


def show(report: dict[str, Any], threads: int) -> None:
    """Print the table."""
    rows = table("framework", "case", ">step, ms", ">min to max", ">of float32", ">Gop/s")
    medians = {
        (case["framework"], case["case"]): statistics.median(case["step_ms"])
        for case in report["cases"]
    }
    for case in report["cases"]:
        framework, name, times = case["framework"], case["case"], case["step_ms"]
        median = medians[framework, name]
        rate = MULTIPLYING[name] * report["operations"] / median / 1e6
        rows.add_row(
            NAMES[framework],
            name,
            f"{median:.1f}",
            f"{min(times):.1f} to {max(times):.1f}",
            f"{median / medians[framework, 'float32']:.2f}",
            f"{rate:.0f}",
        )
    screen = console()
    screen.print(rows)
    screen.print(
        f"{report['cases'][0]['environment']['device']}, {threads} threads, batch "
        f"{report['batch_size']}, medians of {len(report['cases'][0]['step_ms'])} interleaved "
        f"steps, load {report['load']:.1f}. Gop/s: operations of the hardware in the step's "
        "products, nine times as many for int8."
    )


if __name__ == "__main__":
    with user_errors():
        tyro.cli(main, prog="python -m benchmarks.exact")
