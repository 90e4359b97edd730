"""Replicas in one program are the runs alone. On a CPU here, where users are refused them."""

from dataclasses import asdict, replace

import jax
import numpy as np
import pytest

from jax_impl.replicas import Replicas
from parity import launch, results, runs
from parity.config import TrainConfig
from parity.errors import RunFailed
from parity.platforms import Platform
from parity.runs import RunRecord

SEEDS = (42, 43)
ENVIRONMENT = {"framework": "jax", "platform": "cpu"}
CONFIG = TrainConfig(
    dataset="digits",
    train_size=8,
    test_size=4,
    batch_size=4,
    epochs=2,
    replicas=len(SEEDS),
    optimizer="sgd",
    quiet=True,
)


@pytest.fixture(autouse=True)
def _leave_x64_as_it_was():
    yield
    jax.config.update("jax_enable_x64", False)


def trained(folder, trainer, **changes) -> list[RunRecord]:
    config = TrainConfig(**{**vars(CONFIG), "out": folder, **changes})
    launch.run_replicas(lambda: trainer(config), config, ENVIRONMENT, "binary")
    return [runs.read_record(folder / f"replica-seed{seed}") for seed in SEEDS]


def make(config) -> Replicas:
    return Replicas(config, Platform("cpu"), 1)


def alone(trainer, seed, out, **changes) -> RunRecord:
    """Return the run of one seed, by the same stretches."""
    config = TrainConfig(**{**vars(CONFIG), "replicas": 1, "seed": seed, "out": out, **changes})
    trainer.holds_images = True
    out.mkdir()
    launch.run(trainer, config, None, ENVIRONMENT, "binary")
    return runs.read_record(out)


def essence(record: RunRecord):
    predictions, weights = record.predictions(), record.final_weights()
    assert predictions is not None
    assert weights is not None
    epochs = [asdict(replace(e, train_seconds=0.0, test_seconds=0.0)) for e in record.epochs]
    config = {**record.config.to_json(), "out": None}
    return config, record.fingerprints, record.status, epochs, predictions.tolist(), record.files


def test_exact_replicas_record_what_the_runs_alone_do(tmp_path):
    made = []
    together = trained(
        tmp_path / "together",
        lambda config: made.append(make(config)) or made[0],
        arithmetic="exact",
    )
    for seed, record in zip(SEEDS, together, strict=True):
        single = alone(made[0], seed, tmp_path / f"alone-{seed}", arithmetic="exact")
        assert essence(record) == essence(single)
    assert together[0].epochs[-1].weights_sha256 != together[1].epochs[-1].weights_sha256
    assert together[0].fingerprints["data"] != together[1].fingerprints["data"]
    assert together[0].environments[0]["replicas"] == len(SEEDS)


def test_float32_replicas_are_close_to_the_runs_alone_and_one_may_fail(tmp_path):
    trainer = make(CONFIG)
    together = trained(tmp_path / "together", lambda config: trainer)
    for seed, record in zip(SEEDS, together, strict=True):
        single = alone(trainer, seed, tmp_path / f"alone-{seed}")
        # XLA fuses the two programs differently: 1e-7 a step, and 4 steps of SGD amplify little.
        np.testing.assert_allclose(record.step_losses(), single.step_losses(), rtol=1e-4)

    found = results.read([tmp_path / "together"]).results
    assert [(r.name, r.seed, r.finished) for r in found] == [
        (f"replica-seed{seed}", seed, True) for seed in SEEDS
    ]

    load_all = trainer.load_all

    def spoil(states):
        states[1]["conv2.weight"].flat[0] = np.inf
        load_all(states)

    trainer.load_all = spoil
    with pytest.raises(RunFailed, match=r"^1 of 2 runs:\n  conv2.weight is NaN .* epoch 1, step 1"):
        trained(tmp_path / "spoilt", lambda config: trainer)
    well, failed = (runs.read_record(tmp_path / "spoilt" / f"replica-seed{s}") for s in SEEDS)
    assert (failed.status, len(failed.epochs)) == ("failed", 0)
    assert essence(well) == essence(together[0])
