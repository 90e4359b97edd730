"""Train a few exact steps with the batch in shards, and print the digest of all that it made.

python sharded_run.py FRAMEWORK NUM_SHARDS [FAULT]

FAULT own-scales: each shard of PyTorch quantises by the largest value of its own.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from parity import weights
from parity.architecture import initial_weights
from parity.config import TrainConfig
from parity.data import digits
from parity.data.dataset import subset
from parity.data.pipeline import Batch, train_batches
from parity.optimizers import initial_state
from parity.platforms import Platform

SIZES = {"train_size": 64 + 8, "test_size": 1}  # a partial batch, of which 4 shards have 2 images
CONFIG = TrainConfig(dataset="digits", arithmetic="exact", engine="float64", batch_size=32)


def batches() -> list[Batch]:
    """Return two epochs."""
    images = subset(digits.load(), seed=0, **SIZES)
    return [
        batch
        for epoch in (1, 2)
        for batch in train_batches(images, seed=0, epoch=epoch, batch_size=CONFIG.batch_size)
    ]


def finish(trainer, shard=lambda batch: batch) -> str:
    """Train and return the digest of weights, buffers, slots and losses."""
    first = initial_weights(CONFIG.seed)
    trainer.load(first | initial_state(CONFIG.optimizer, first))
    losses = [trainer.train_step(shard(batch)).loss for batch in batches()]
    return weights.digest(trainer.state() | {"losses": np.array(losses)})


def run_torch(num_shards: int) -> str:
    """Train in as many processes; each sees its part of a batch alone."""
    from torch import distributed as dist

    from torch_impl import shards
    from torch_impl.trainer import Trainer

    if num_shards == 1:
        return finish(Trainer(CONFIG, Platform("cpu"), 1))
    if "RANK" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            processes = [
                subprocess.Popen(
                    [sys.executable, *sys.argv],
                    env=os.environ | {"RANK": str(rank), "STORE": str(Path(folder) / "store")},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for rank in range(num_shards)
            ]
            digests = {process.communicate()[0].strip() for process in processes}
            return " ".join(sorted(digests))
    rank, store = int(os.environ["RANK"]), f"file://{os.environ['STORE']}"
    if sys.argv[3:] == ["own-scales"]:
        shards.largest = lambda x: x
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=num_shards)

    def shard(batch: Batch) -> Batch:
        size = len(batch.labels) // num_shards
        part = slice(rank * size, (rank + 1) * size)
        return Batch(images=batch.images[part], labels=batch.labels[part], keep=batch.keep[part])

    digest = finish(Trainer(CONFIG, Platform("cpu"), 1), shard)
    dist.destroy_process_group()
    return digest


def run_jax(num_shards: int) -> str:
    """Train on as many devices, which XLA makes of the processor."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={num_shards}"
    import jax
    from jax.sharding import AxisType
    from jax.sharding import PartitionSpec as P

    from jax_impl import shards
    from jax_impl.trainer import Trainer

    trainer = Trainer(CONFIG, Platform("cpu"), 1)
    if num_shards > 1:
        step = trainer._update_step

        def part(*arguments):
            with shards.over("shards", num_shards):
                return step(*arguments)

        mesh = jax.make_mesh((num_shards,), ("shards",), axis_types=(AxisType.Auto,))
        split = P("shards")
        trainer._update = jax.jit(
            jax.shard_map(
                part,
                mesh=mesh,
                in_specs=(P(), split, split, split),
                out_specs=(P(), P(), split),
                check_vma=False,  # the sums over shards are ours
            )
        )
    return finish(trainer)


if __name__ == "__main__":
    print({"torch": run_torch, "jax": run_jax}[sys.argv[1]](int(sys.argv[2])))
