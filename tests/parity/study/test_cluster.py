"""A real Ray cluster of two machines in processes of this one, with a worker killed in between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.runs import read_record
from parity.study import cluster
from parity.study.design import parse
from parity.study.planning import Choices, plan

HERE = Path(__file__).parent

STUDY = """
import sys
from parity.command import user_errors
from parity.study.__main__ import Options, run
what, on, address = sys.argv[1:]
with user_errors():
    options = Options(on=on, backend="ray")
    sys.exit(run(what, options, address=address, modules={"torch": "fake_train"}))
"""


def a_run(device: str):
    design = parse({"name": "x", "runs": [{}]}, "x")
    (run,) = plan(design, Choices(frameworks=("torch",), on=(device,)), "ray")
    return run


@pytest.mark.parametrize(
    ("device", "needs"),
    [
        ("cpu:avx2", {"CPU": 3}),
        ("gpu", {"CPU": 3, "GPU": 1}),
        ("gpu@T4", {"CPU": 3, "GPU": 1, "accelerator_type:T4": 0.001}),
        ("xla@TPU-V6E", {"CPU": 3, "TPU": 1, "accelerator_type:TPU-V6E": 0.001}),
    ],
)
def test_a_run_asks_for_the_device_it_needs(device, needs):
    assert cluster.demand(a_run(device), 3) == needs


def test_records_come_home_whole_and_old_checkpoints_go(tmp_path):
    (tmp_path / "log.txt").write_text("before\n")
    (tmp_path / "checkpoint-1.safetensors").touch()
    files = {"record.json": b"{}", "log.txt": b"after\n", "weights.safetensors": b"w"}
    cluster.bring_home(tmp_path, files)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == files | {
        "log.txt": b"before\nafter\n"
    }


def test_without_ray_or_a_cluster_the_user_is_told(tmp_path):
    (tmp_path / "mine.toml").write_text('name = "mine"\n[[runs]]')
    command = [sys.executable, "-m", "parity.study", "run", "mine.toml", "--backend", "ray"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE.parents[2]), *sys.path])}
    done = subprocess.run(
        [*command, "--address", "127.0.0.1:1"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 2
    assert "Ray is not installed" in done.stderr or "There is no Ray cluster at" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def ray_cluster(tmp_path, monkeypatch):
    """Return the address of a cluster of a plain machine and one that says it has a T4."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parents[2]), *sys.path]))
    monkeypatch.setenv("FAKE_TRACE", str(tmp_path / "trace"))
    monkeypatch.setenv("FAKE_SECONDS", "1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1, num_gpus=1, resources={"accelerator_type:T4": 1})
    yield made.address
    made.shutdown()


@pytest.mark.slow  # 15 s on two free cores, but a cluster starts within minutes on busy ones
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_lost_workers_run_is_done_again_and_records_come_home(ray_cluster, tmp_path):
    text = 'name = "mine"\nframeworks = ["torch"]\n[base]\nepochs = 4\n[[runs]]\nseed = [1, 13]'
    (tmp_path / "mine.toml").write_text(text)
    trace = tmp_path / "trace"
    process = subprocess.Popen(
        [sys.executable, "-c", STUDY, "mine.toml", "cpu,gpu@T4", ray_cluster],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        pids = [int(line.split()[1]) for line in wait_for_lines(trace, 1) if "seed13" not in line]
        worker = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"ray::" in Path(f"/proc/{worker}/cmdline").read_bytes()
        os.kill(worker, signal.SIGKILL)
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 1, out + err
    assert "2 runs finished, 2 failed, 0 not applicable." in out
    assert "| failed: thirteen" in out
    assert not Path(f"/proc/{pids[0]}").exists(), "the training process outlived its worker"
    starts = [line.split()[1] for line in trace.read_text().splitlines()]
    assert len(starts) == len(set(starts)) == 5  # four runs, one of them twice
    finished = [p for p in (tmp_path / "runs" / "mine").glob("torch-*seed1-*")]
    assert sorted(len(read_record(p).epochs) for p in finished) == [4, 4]
    assert {read_record(p).config.device for p in finished} == {"cpu", "gpu"}
    for path in finished:
        assert json.loads((path / "attempt.json").read_text())["exit_status"] == 0
        assert (path / "log.txt").read_text().startswith("$ ")


def wait_for_lines(file: Path, number: int) -> list[str]:
    for _ in range(3000):
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) >= number:
            return lines
        time.sleep(0.1)
    raise TimeoutError(f"{file} has not come to {number} lines.")
