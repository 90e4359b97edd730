"""torch_impl and jax_impl as they are timed: their Trainer, our batches, our epoch loop."""

import importlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity import platforms
from parity.config import TrainConfig
from parity.data.pipeline import Batch, OwnPipeline
from parity.loop import train
from parity.progress import Silent
from parity.runs import Epoch
from parity.start import prepare

NEVER = 10**6
"""Epochs after which a run would end by itself."""


class Subject:
    """One implementation with its data. See benchmarks.worker.Subject."""

    def __init__(self, config: TrainConfig, framework: platforms.Framework) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._config = replace(config, out=Path(self._folder.name), epochs=NEVER)
        threads = config.threads or platforms.available_threads()
        self._trainer = importlib.import_module(f"{framework}_impl.trainer").Trainer(
            config, platforms.parse(config.device, framework), threads
        )
        self._pipeline = OwnPipeline(config.seed)
        start = prepare(self._config, None, {}, "binary", self._pipeline)
        self._dataset, self._record = start.dataset, start.record
        self._trainer.load(start.state)
        self._epoch = 0

    def environment(self) -> dict[str, Any]:
        """Return what the Trainer says."""
        return self._trainer.environment()

    def batches(self) -> Iterator[Batch]:
        """Return an epoch's batches, made by the thread that asks."""
        config = self._config
        self._epoch += 1
        return self._pipeline.train_batches(
            self._dataset,
            seed=config.seed,
            epoch=self._epoch,
            batch_size=config.batch_size,
            workers=config.workers,
        )

    def train_step(self, batch: Batch) -> None:
        """Do an update."""
        self._trainer.train_step(batch)

    def epochs(self, report: Callable[[float, float], None]) -> None:
        """Run the epoch loop of the train commands, whose own clocks these are."""
        train(self._trainer, self._dataset, self._record, _Reporting(report), self._pipeline)


class _Reporting(Silent):
    def __init__(self, report: Callable[[float, float], None]) -> None:
        self._report = report

    def epoch(self, figures: Epoch) -> None:
        self._report(figures.train_seconds, figures.test_seconds)
