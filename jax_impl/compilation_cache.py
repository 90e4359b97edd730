"""Compiled steps kept on disk, so that the next run starts in half the time.

JAX names a compiled step after its program, XLA's flags (an instruction-set cap is one) and its own
version. The folder is named after all else that can change a bit of it: see `folder`.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import jax

from parity import platforms
from parity.config import TrainConfig

MAX_BYTES = 2**28
"""Of a folder: the steps of hundreds of settings. With a bound JAX also locks the folder, so that
runs side by side never read a file that is half written."""


def root() -> Path:
    """Return the folder of all caches: JAX_COMPILATION_CACHE_DIR, or one in the user's cache."""
    if given := os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "training-parity"


def folder(processor: Mapping[str, str], variables: Mapping[str, str]) -> str:
    """Return the name of the folder for what is compiled on a processor under these variables.

    Args:
        processor: By `platforms.processor`.
        variables: Those that can change numerics, the number of threads among them, by
            `platforms.recorded_variables`.
    """
    text = json.dumps([dict(processor), dict(variables)], sort_keys=True)
    return f"jax-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def use(config: TrainConfig) -> None:
    """Keep what JAX compiles in this process, and take what is there; the environment is entered.

    Where the folder cannot be made, everything is compiled as without it.
    """
    if config.autotune:
        return  # its choices would outlive the run that timed them
    path = root() / folder(platforms.processor(), platforms.recorded_variables(os.environ))
    with contextlib.suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(path))
        jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
        # The many small programs around a step take as long as the step.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
