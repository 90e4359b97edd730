"""What the loader costs of a training step: `python -m benchmarks.loader torch` (or jax).

The thread that makes batches ahead is paid for when it takes cores from the step, so its own CPU
time is compared with the step's wall time.
"""

import importlib
import statistics
import sys
import time

from parity import platforms
from parity.config import TrainConfig
from parity.data import digits
from parity.data.dataset import Dataset
from parity.data.pipeline import train_batches

NUM_STEPS = 33
WARM_UP = 3


def main(framework: platforms.Framework) -> None:
    """Print the loader's and the step's median time, and their ratio."""
    platform, threads = platforms.parse("cpu", framework), platforms.available_threads()
    platforms.enter(platform, threads)
    trainer = importlib.import_module(f"{framework}_impl.trainer").Trainer(
        config := TrainConfig(dataset="digits"), platform, threads
    )
    loader_ms, step_ms = [], []
    batches = _endless(digits.load(), config)
    for _ in range(NUM_STEPS):
        begin = time.thread_time()
        batch = next(batches)
        loader_ms.append(1e3 * (time.thread_time() - begin))
        begin = time.perf_counter()
        trainer.train_step(batch)
        step_ms.append(1e3 * (time.perf_counter() - begin))
    loader, step = (statistics.median(times[WARM_UP:]) for times in (loader_ms, step_ms))
    print(
        f"{framework}, {threads} threads, batch {config.batch_size}: loader {loader:.1f} ms of CPU "
        f"time a batch, step {step:.1f} ms; ratio {100 * loader / step:.1f} % "
        f"(medians of {NUM_STEPS - WARM_UP} interleaved)"
    )


def _endless(dataset: Dataset, config: TrainConfig):
    for epoch in range(1, 1_000):
        for batch in train_batches(
            dataset, seed=config.seed, epoch=epoch, batch_size=config.batch_size
        ):
            if len(batch.labels) == config.batch_size:
                yield batch


if __name__ == "__main__":
    if sys.argv[1:] not in (["jax"], ["torch"]):
        sys.exit("usage: python -m benchmarks.loader jax|torch")
    main("jax" if sys.argv[1] == "jax" else "torch")
