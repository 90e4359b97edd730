"""What every mode and every choice of kernels really does on a device: one table, minutes.

    python -m benchmarks.grid_on_gpu [--device gpu] [--out grid_on_gpu]

Trains an epoch on digits twice in each setting and shows how many mantissa bits products keep,
whether both runs end in the same weights, and what is refused, with the reason.
"""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import tyro

from parity.arithmetic import OPERAND_BITS, Arithmetic
from parity.command import user_errors
from parity.console import console
from parity.runs import read_record

FRAMEWORKS = ("torch", "jax")
SETTINGS = (
    *(("--arithmetic", mode) for mode in get_args(Arithmetic) if mode in OPERAND_BITS),
    ("--autotune",),
    ("--no-deterministic",),
    ("--autotune", "--no-deterministic"),
)
STEPS = ("--dataset", "digits", "--train-size", "512", "--test-size", "64", "--epochs", "1")


def main(*, device: str = "gpu", out: Path = Path("grid_on_gpu")) -> None:
    """Train in every setting on a device.

    Args:
        device: gpu, gpu:1 or cpu, as the train commands take it.
        out: New folder for the runs.
    """
    screen = console()
    for framework in FRAMEWORKS:
        for number, flags in enumerate(SETTINGS):
            ends = []
            for repeat in (1, 2):
                folder = out / f"{framework}-{number}-{repeat}"
                command = [sys.executable, "-m", f"{framework}_impl.train", "--device", device]
                command += [*flags, *STEPS, "--quiet", "--out", str(folder)]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    break
                ends.append(read_record(folder))
            what = f"{framework} {' '.join(flags)}:"
            if len(ends) < 2:
                screen.print(what, done.stderr.strip())
                continue
            bits = sorted(set(ends[0].environments[0]["product_bits"].values()))
            same = ends[0].epochs[0].weights_sha256 == ends[1].epochs[0].weights_sha256
            screen.print(what, f"products keep {bits} bits, repeats to the bit: {same}")


if __name__ == "__main__":
    with user_errors():
        tyro.cli(main)
