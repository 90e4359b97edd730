"""The rules of the house that code can show."""

import subprocess
import sys

import pytest

PROBE = """
import importlib, pkgutil, sys, {0} as package
for module in pkgutil.walk_packages(package.__path__, "{0}."):
    importlib.import_module(module.name)
print(*sys.modules)
"""


@pytest.mark.parametrize(
    ("package", "own"),
    [("parity", set()), ("jax_impl", {"jax", "flax"}), ("torch_impl", {"torch"})],
)
def test_loads_no_foreign_framework(package, own):
    probe = [sys.executable, "-c", PROBE.format(package)]
    loaded = subprocess.run(probe, capture_output=True, check=True, text=True).stdout
    assert {"jax", "flax", "torch", "tensorflow"} & set(loaded.split()) <= own


def test_the_twins_have_files_of_the_same_names():
    from pathlib import Path

    root = Path(__file__).parent.parent
    jax, torch = ({p.name for p in (root / d).glob("*.py")} for d in ("jax_impl", "torch_impl"))
    # Replicas are jax.vmap, and PyTorch compiles nothing here: what a scan is to JAX, a CUDA graph
    # is to it. The article ran PyTorch alone; its pipeline is PyTorch's generators.
    only_jax = {"compilation_cache.py", "replicas.py"}
    assert jax - only_jax == torch - {"article_pipeline.py", "graph.py"}
