"""A cache of compiled steps may save time, and nothing else."""

import os
import subprocess
import sys

import jax
import pytest

from jax_impl import compilation_cache
from parity import platforms
from parity.config import TrainConfig
from parity.runs import read_record

SMALL = ("--dataset", "digits", "--train-size", "192", "--test-size", "64", "--epochs", "1")


def trained(folder, root, **variables: str) -> str:
    """Train in a process of its own and return the digest of the weights."""
    command = [sys.executable, "-m", "jax_impl.train", *SMALL, "--quiet", "--out", str(folder)]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(root)} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return read_record(folder).epochs[-1].weights_sha256


def test_a_run_takes_the_step_that_another_compiled_and_ends_in_the_same_bits(tmp_path):
    root = tmp_path / "cache"
    without = trained(tmp_path / "without", root, JAX_ENABLE_COMPILATION_CACHE="0")
    assert not list(root.glob("*/*-cache"))
    compiled = trained(tmp_path / "compiled", root)
    kept = sorted(root.glob("*/*-cache"))
    assert [path for path in kept if path.name.startswith("jit__update_step-")]
    taken = trained(tmp_path / "taken", root)
    assert sorted(root.glob("*/*-cache")) == kept
    assert without == compiled == taken


@pytest.mark.parametrize(
    "changed",
    [{"NPROC": "1"}, {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}, {"JAX_ENABLE_X64": "1"}],
    ids=lambda changed: next(iter(changed)),
)
def test_other_settings_have_a_folder_of_their_own(changed):
    processor, variables = platforms.processor(), {"NPROC": "2"}
    ours = compilation_cache.folder(processor, variables)
    assert ours == compilation_cache.folder(processor, dict(variables))
    assert ours != compilation_cache.folder(processor, variables | changed)


def test_another_processor_has_a_folder_of_its_own():
    ours = compilation_cache.folder(platforms.processor(), {})
    assert ours != compilation_cache.folder(platforms.processor() | {"flags": "fpu sse2"}, {})


def test_a_folder_that_cannot_be_made_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compilation_cache.use(TrainConfig())
    assert jax.config.jax_compilation_cache_dir is None


def test_what_autotuning_chose_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    compilation_cache.use(TrainConfig(autotune=True))
    assert not list(tmp_path.iterdir())
    names = ("cache_dir", "cache_max_size")
    before = {n: getattr(jax.config, f"jax_compilation_{n}") for n in names}
    seconds = jax.config.jax_persistent_cache_min_compile_time_secs
    try:
        compilation_cache.use(TrainConfig())
        assert list(tmp_path.iterdir())
    finally:
        for name, value in before.items():
            jax.config.update(f"jax_compilation_{name}", value)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)
