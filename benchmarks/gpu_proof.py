"""Does exact arithmetic hold on this GPU, and what does it cost there? One command, minutes.

    python -m benchmarks.gpu_proof [--device gpu] [--out gpu_proof]

Checks every operation and engine against the oracle on the device, trains 207 steps in both
frameworks with both engines and compares the digest of every epoch with PyTorch's on the CPU, and
times float32, TF32 and exact. Needs the development installation, with CUDA builds of PyTorch
and JAX. `--device cpu` tests the script itself.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import tyro

from parity.command import user_errors
from parity.config import EngineName
from parity.console import console
from parity.errors import RunFailed
from parity.files import write_atomically
from parity.runs import read_record

FRAMEWORKS = ("torch", "jax")
STEPS = ("--dataset", "digits", "--batch-size", "64", "--epochs", "9")
"""Of 1,437 images: 23 steps an epoch, 207 in all, the last of each epoch with 29 images."""


def main(*, device: str = "gpu", out: Path = Path("gpu_proof")) -> None:
    """Prove exact arithmetic on a device and time it there.

    Args:
        device: gpu, gpu:1 or cpu, as the train commands take it.
        out: New folder for the runs, the logs and proof.json.
    """
    out.mkdir(parents=True, exist_ok=True)
    screen = console()
    report: dict[str, object] = {"device": device, "date": time.strftime("%Y-%m-%d")}
    # Training first: its digests are what a lent machine is lent for.
    digests = {"reference": trained("torch", "cpu", "float64", out / "reference")}
    for framework in FRAMEWORKS:
        for engine in get_args(EngineName):
            name = f"{framework} {device} {engine}"
            folder = out / f"{framework}-{engine}"
            digests[name] = trained(framework, device, engine, folder)
            equal = digests[name] == digests["reference"]
            screen.print(f"{name}: digests of {len(digests[name])} epochs equal: {equal}")
    report["digests"] = digests
    report["bitwise_identical"] = len(set(map(tuple, digests.values()))) == 1
    write(out, report)
    operations = {framework: tested(framework, device, out) for framework in FRAMEWORKS}
    report["operations"] = {name: last_line for name, (_, last_line) in operations.items()}
    screen.print(report["operations"])
    write(out, report)
    timing = out / "timing.json"
    python("benchmarks.exact", "--device", device, "--tf32", "--out", str(timing))
    report["timing"] = json.loads(timing.read_text())
    write(out, report)
    passed = all(passed for passed, _ in operations.values())
    if not (passed and report["bitwise_identical"]):
        raise RunFailed(f"Exact arithmetic does not hold on {device}. See {out}/proof.json.")
    screen.print(f"Exact arithmetic holds on {device}: {out}/proof.json")


def trained(framework: str, device: str, engine: str, folder: Path) -> list[str]:
    """Return the digest of the weights after every epoch."""
    flags = ("--arithmetic", "exact", "--engine", engine, "--device", device)
    python(f"{framework}_impl.train", *flags, *STEPS, "--quiet", "--out", str(folder))
    return [epoch.weights_sha256 for epoch in read_record(folder).epochs]


def tested(framework: str, device: str, out: Path) -> tuple[bool, str]:
    """Return whether a framework's operations and engines pass, and pytest's last line on them."""
    files = [f"tests/{framework}_impl/test_{name}.py" for name in ("ops", "engines")]
    flags = ("-q", "--device", device, "-k", "not planted", "-p", "no:cacheprovider")
    log = out / f"{framework}_operations.log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "pytest", *files, *flags]
        status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode
    return status == 0, log.read_text().strip().splitlines()[-1]


def python(module: str, *flags: str) -> None:
    """Run one of the project's commands."""
    if subprocess.run([sys.executable, "-m", module, *flags], check=False).returncode:
        raise RunFailed(f"python -m {module} {' '.join(flags)} failed: see above.")


def write(out: Path, report: dict[str, object]) -> None:
    """Keep what is known so far."""
    text = json.dumps(report, indent=1) + "\n"
    write_atomically(out / "proof.json", lambda file: file.write(text.encode()))


if __name__ == "__main__":
    with user_errors():
        tyro.cli(main, prog="python -m benchmarks.gpu_proof")
