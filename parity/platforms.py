"""Platforms: a device string becomes environment variables, and the machine a fingerprint.

`cpu:sse4`, `cpu:avx2` and `cpu:avx512` are platforms of their own: they cap the instruction set of
ATen, oneDNN, MKL and XLA, and so really change the bits of float32 results on one machine. The
variables must be set before a framework loads, which is why nothing here imports one.
"""

import os
import platform as host
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from parity.errors import UserError

Kind = Literal["cpu", "gpu", "tpu", "mps", "xla"]
Framework = Literal["jax", "torch"]

KINDS: dict[Framework, tuple[Kind, ...]] = {
    "jax": ("cpu", "gpu", "tpu"),
    "torch": ("cpu", "gpu", "mps", "xla"),
}

LEVELS: dict[str, dict[str, str]] = {
    # MKL heeds MKL_ENABLE_INSTRUCTIONS on Intel processors only, MKL_CBWR on all of them.
    "sse4": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",
        "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX512",
    },
}

_CPU_FLAGS = {"sse4": {"sse4_2"}, "avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw"}}

CUBLAS_WORKSPACE = ":4096:8"
"""cuBLAS is deterministic only with a fixed workspace. Source: cuBLAS's section on results
reproducibility, which torch.use_deterministic_algorithms asks for too."""

XLA_AUTOTUNE_LEVEL = 4
"""XLA's own default. Source: DebugOptions' default, xla_gpu_autotune_level(4)."""

RECORDED_VARIABLES = re.compile(
    r"(ATEN|CUBLAS|CUDA|CUDNN|DNNL|JAX|KMP|MKL|NPROC|NVIDIA_TF32|OMP|ONEDNN|OPENBLAS|PYTORCH|TF32"
    r"|TORCH|TPU|XLA)(_|$)"
)
"""Environment variables that can change the numerics of a run."""


@dataclass(frozen=True)
class Platform:
    """Where a run computes."""

    kind: Kind
    level: str | None = None
    """Instruction-set cap of a CPU: sse4, avx2 or avx512; None for the whole processor."""
    index: int = 0
    """Number of the GPU."""

    @property
    def name(self) -> str:
        """The canonical device string: cpu, cpu:avx2, gpu:0, tpu, ..."""
        if self.kind == "gpu":
            return f"gpu:{self.index}"
        return f"{self.kind}:{self.level}" if self.level else self.kind


def parse(device: str, framework: Framework) -> Platform:
    """Return the platform that a device string means to a framework on this machine.

    Raises:
        UserError: If there is no such platform, or this processor lacks the instruction set.
    """
    platform = named(device, framework)
    if platform.level is not None:
        _check_level(platform.level)
    return platform


def named(device: str, framework: Framework) -> Platform:
    """Return the platform that a device string means to a framework on some machine.

    Raises:
        UserError: If there is no such platform.
    """
    kind, _, rest = device.partition(":")
    kind = "gpu" if kind == "cuda" else kind
    if kind in KINDS[framework]:
        if not rest and not device.endswith(":"):
            return Platform(kind)
        if kind == "gpu" and rest.isdecimal():
            return Platform(kind, index=int(rest))
        if kind == "cpu" and rest in LEVELS:
            return Platform(kind, level=rest)
    names = ["cpu", *(f"cpu:{level}" for level in LEVELS), "gpu (or cuda)", "gpu:1"]
    names += [k for k in KINDS[framework] if k not in ("cpu", "gpu")]
    raise UserError(
        f"--device {device} is no platform of {framework}_impl. Choose one of: {', '.join(names)}."
    )


def _check_level(level: str) -> None:
    if host.machine().lower() not in ("x86_64", "amd64"):
        raise UserError(
            f"--device cpu:{level} caps the instruction set of an x86-64 processor, and this is "
            f"{host.machine()}. Use --device cpu."
        )
    flags = _cpuinfo("flags").split()
    missing = sorted(_CPU_FLAGS[level] - set(flags)) if flags else []
    if missing:
        offered = ["cpu", *(f"cpu:{n}" for n, needs in _CPU_FLAGS.items() if needs <= set(flags))]
        raise UserError(
            f"--device cpu:{level} needs a processor with {', '.join(missing)}, which this one "
            f"lacks. Choose {', '.join(offered)}."
        )


def instruction_set_allowed(platform: Platform) -> str | None:
    """Return the highest level that processor and platform allow; None where it is unknown."""
    flags = set(_cpuinfo("flags").split())
    levels = [level for level, needs in _CPU_FLAGS.items() if needs <= flags]
    if platform.level is not None:
        levels = [
            level
            for level in levels
            if list(LEVELS).index(level) <= list(LEVELS).index(platform.level)
        ]
    return levels[-1] if levels else None


def _cpuinfo(key: str) -> str:
    """Return a field of the first processor in /proc/cpuinfo, or "" where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    found = re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def processor() -> dict[str, str]:
    """Return what a compiler sees of the processor, by Linux's names; "" where that is unknown."""
    keys = ("vendor_id", "cpu family", "model", "model name", "flags")
    return {key: _cpuinfo(key) for key in keys} | {"machine": host.machine()}


def cpu_flags() -> frozenset[str] | None:
    """Return what the processor offers, by Linux's names; None where that is unknown."""
    return frozenset(_cpuinfo("flags").split()) or None


def gpu_capability(index: int) -> tuple[int, int] | None:
    """Return the compute capability of a GPU by nvidia-smi, or None where there is none."""
    answer = _nvidia_smi("compute_cap", "-i", str(index))
    found = re.fullmatch(r"(\d+)\.(\d+)", answer or "")
    return (int(found.group(1)), int(found.group(2))) if found else None


def available_threads() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def threads(asked: int | None) -> int:
    """Return the number of threads that a framework gets; None asks for one a core.

    Raises:
        UserError: If there are not so many cores.
    """
    cores = available_threads()
    if asked is not None and asked > cores:
        raise UserError(
            f"--threads is {asked}, but this process has {cores} cores. "
            "Ask for no more, or threads would wait for each other."
        )
    return asked or cores


@dataclass(frozen=True)
class Kernels:
    """Which kernels a GPU may take: what must be said before a framework loads."""

    deterministic: bool = True
    autotune: bool = False
    tf32: bool = False

    def variables(self) -> dict[str, str | None]:
        """Return the environment variables, None for one that must not be there."""
        level = XLA_AUTOTUNE_LEVEL if self.autotune else 0
        # deterministic_ops would turn autotuning off; to exclude the other operations does not.
        flag = {
            (True, False): "--xla_gpu_deterministic_ops=true",
            (True, True): "--xla_gpu_exclude_nondeterministic_ops=true",
        }.get(
            (self.deterministic, self.autotune),
            "--xla_gpu_deterministic_ops=false --xla_gpu_exclude_nondeterministic_ops=false",
        )
        return {
            "CUBLAS_WORKSPACE_CONFIG": CUBLAS_WORKSPACE if self.deterministic else None,
            # NVIDIA's libraries obey it before any other switch.
            "NVIDIA_TF32_OVERRIDE": None if self.tf32 else "0",
            "XLA_FLAGS": f"{flag} --xla_gpu_autotune_level={level}",
        }


def variables(
    platform: Platform, threads: int, kernels: Kernels | None = None
) -> dict[str, str | None]:
    """Return the environment of a platform, to be entered before a framework loads.

    Args:
        platform: Where the run computes.
        threads: CPU threads given to the framework.
        kernels: Of a GPU. Default: deterministic ones without autotuning or TF32.

    Returns:
        Values by variable; None for one that must not be there.
    """
    values: dict[str, str | None] = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # XLA sizes its CPU thread pool by this one.
        "NPROC": str(threads),
        # Keeps JAX from claiming an accelerator that the run does not use; "" lets it look for all.
        "JAX_PLATFORMS": "cpu" if platform.kind == "cpu" else "",
    }
    if platform.kind == "cpu":
        values |= LEVELS[platform.level] if platform.level else {}
    elif platform.kind == "gpu":
        values |= (kernels or Kernels()).variables()
    return values


def enter(platform: Platform, threads: int, kernels: Kernels | None = None) -> None:
    """Set the environment of a platform in this process, before its framework loads.

    XLA_FLAGS of the user's are kept, and ours come last, where they win.
    """
    assert not {"jax", "torch"} & set(sys.modules), "a framework is loaded already"
    for name, value in variables(platform, threads, kernels).items():
        if value is None:
            os.environ.pop(name, None)
            continue
        if name == "XLA_FLAGS" and os.environ.get(name):
            value = f"{os.environ[name]} {value}"
        os.environ[name] = value


def fingerprint(platform: Platform, threads: int, packages: tuple[str, ...]) -> dict[str, Any]:
    """Return what this process runs on, as plain JSON values.

    Args:
        platform: Where the run computes.
        threads: CPU threads given to the framework.
        packages: Distributions whose versions matter.
    """
    return {
        "platform": platform.name,
        "threads": threads,
        "cpu": _cpuinfo("model name") or host.processor() or host.machine(),
        "cpu_cores": available_threads(),
        "instruction_set_allowed": instruction_set_allowed(platform),
        "system": host.platform(),
        "host": host.node(),
        "python": host.python_version(),
        "versions": {name: metadata.version(name) for name in ("numpy", *packages)},
        "variables": recorded_variables(os.environ),
        "git_commit": _git_commit(),
    }


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those variables of an environment that can change the numerics of a run, sorted."""
    return {n: v for n, v in sorted(environment.items()) if RECORDED_VARIABLES.match(n)}


def _git_commit() -> str | None:
    """Return the commit of this code, "+" appended where files are changed, or None."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else: another project's checkout
        commit = git("rev-parse", "HEAD")
        return f"{commit}+" if git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def nvidia_driver() -> str | None:
    """Return the version of the NVIDIA driver, or None where there is none."""
    return _nvidia_smi("driver_version")


def _nvidia_smi(field: str, *options: str) -> str | None:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader", *options]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return output.stdout.split("\n")[0].strip() or None
