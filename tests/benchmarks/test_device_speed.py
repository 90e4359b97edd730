import subprocess

import numpy as np
import pytest

from benchmarks import device_speed
from benchmarks.device_speed import CASES, Case
from parity import runs
from parity.config import TrainConfig
from parity.data.cifar10 import read_binary
from parity.runs import Epoch, RunRecord


def record(folder, train_seconds) -> RunRecord:
    folder.mkdir(parents=True, exist_ok=True)
    epochs = tuple(
        Epoch(
            epoch=number,
            train_loss=1.0,
            train_accuracy=1.0,
            test_loss=1.0,
            test_accuracy=1.0,
            weights_sha256="",
            train_seconds=seconds,
            test_seconds=seconds / 10,
            step_losses="",
        )
        for number, seconds in enumerate(train_seconds, start=1)
    )
    made = RunRecord(
        config=TrainConfig(),
        environments=({"framework": "jax", "platform": "gpu", "first_epoch": 1},),
        fingerprints=dict.fromkeys(("data", "stream", "initial_weights"), ""),
        epochs=epochs,
        path=folder,
    )
    runs.write_record(made)
    return made


def test_a_programs_time_is_the_sum_of_its_runs_shares(tmp_path):
    shares = [record(tmp_path / str(n), [5.0, 0.25, 0.5]) for n in range(4)]
    timing = device_speed.timing(Case("x", "jax", (), 2), shares)
    assert timing == ("x", 20.0, (1.0, 2.0), pytest.approx(0.15))


def test_the_noise_is_cifar10_to_its_reader(tmp_path):
    device_speed.write_noise(tmp_path)
    train, test = read_binary(tmp_path)
    assert (train.images.shape, test.images.shape) == ((50_000, 32, 32, 3), (10_000, 32, 32, 3))
    assert set(np.unique(train.labels)) == set(range(10))


def test_targets_are_met_or_missed_by_their_sides():
    lines = device_speed.targets(
        {"jax": 0.4, "torch": 0.5, "article": 4.5, "jax x 16": 1.7}, "jax x 16"
    )
    assert [line.rsplit(": ")[-1] for line in lines] == ["met", "met", "missed", "missed", "missed"]
    assert lines[1] == "the article's way / jax: 11.25, target at least 10: met"
    assert lines[-1] == "jax x 16 / jax: 4.25, target at most 4: missed"
    assert device_speed.targets({"article": 4.5}, "jax x 16") == []


def test_all_cases_run_in_turns_and_a_failing_one_says_why(tmp_path, monkeypatch, capsys):
    commands = []

    def run(command, **options):
        commands.append(command)
        out = tmp_path / command[command.index("--out") + 1]
        if "article" in command:
            return subprocess.CompletedProcess(command, 2, "", "a\nerror: no loader\n")
        epochs = int(command[command.index("--epochs") + 1])
        folders = [out / f"replica-seed{n}" for n in (42, 43)] if "--replicas" in command else [out]
        for folder in folders:
            record(folder, [9.0] + [0.2] * (epochs - 1))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(device_speed, "write_noise", lambda folder: None)
    (tmp_path / "out").mkdir()
    device_speed.main(out=tmp_path / "out", replicas=2)
    assert [c[2] for c in commands] == [
        *(f"{case.framework}_impl.train" for case in CASES),
        *("jax_impl.train", "jax_impl.train", "torch_impl.train"),
    ]
    assert not any("--train-size" in command for command in commands)
    shown = capsys.readouterr().out
    assert "article: no loader" in shown
    assert "jax, s for 10 epochs: 2.00, target at most 4: met" in shown
    assert "jax x 2 / jax: 2.00, target at most 4: met" in shown
    assert (tmp_path / "out" / "device_speed.json").exists()
