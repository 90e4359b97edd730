"""A batch in 2 or 4 shards, their gradients summed, trains to the bits of the whole batch."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sharded_run.py")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}


@cache
def digest(framework, num_shards, *fault):
    """Return the digest of a run of four steps, the last of them with 8 images."""
    command = [sys.executable, str(SCRIPT), framework, str(num_shards), *fault]
    run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("framework", "num_shards"),
    [
        ("torch", 2),
        ("jax", 2),
        pytest.param("torch", 4, marks=pytest.mark.slow),
        pytest.param("jax", 4, marks=pytest.mark.slow),
    ],
)
def test_shards_train_to_the_bits_of_the_whole_batch(framework, num_shards):
    whole = digest("torch", 1)
    assert len(whole) == 64
    assert digest(framework, num_shards) == whole


@pytest.mark.timeout(300)
def test_planted_scales_of_each_shard_are_caught():
    assert digest("torch", 2, "own-scales") != digest("torch", 1)
