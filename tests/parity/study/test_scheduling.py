"""Real processes of a training command that trains nothing, through the real command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parity.runs import read_record
from parity.study import folder as folders
from parity.study import local
from parity.study.design import parse
from parity.study.folder import Attempt
from parity.study.planning import Choices, PlannedRun, plan
from parity.study.scheduling import Estimate

HERE = Path(__file__).parent

STUDY = """
import sys
from parity.command import user_errors
from parity.study.__main__ import Options, run
what, jobs = sys.argv[1:]
with user_errors():
    sys.exit(run(what, Options(), jobs=int(jobs), modules={"torch": "fake_train"}))
"""
"""The command, with the training command replaced."""


class Place:
    """A folder in which studies are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = folder / "trace"
        self.env = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[2])]),
            "FAKE_TRACE": str(self.trace),
        }

    def design(self, text: str) -> str:
        (self.folder / "mine.toml").write_text(f'name = "mine"\nframeworks = ["torch"]\n{text}')
        return "mine.toml"

    def start(self, what="mine.toml", *, jobs=1, seconds=0.0) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", STUDY, what, str(jobs)],
            cwd=self.folder,
            env=self.env | {"FAKE_SECONDS": str(seconds)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # as a terminal would: Ctrl-C goes to a group
        )

    def run(self, what="mine.toml", **options) -> tuple[int, str, str]:
        with self.start(what, **options) as process:
            out, err = process.communicate(timeout=100)
        return process.returncode, out, err

    def command(self, *arguments: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "parity.study", *map(str, arguments)],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=100,
        )
        return done.returncode, done.stdout, done.stderr

    def starts(self) -> list[list[str]]:
        """Folder, process, epochs before and threads of every training process so far."""
        return [line.split() for line in self.trace.read_text().splitlines()]

    def runs(self) -> Path:
        return self.folder / "runs" / "mine"

    def wait_for_epochs(self, number: int) -> None:
        """Return once some run has so many epochs."""
        for _ in range(600):
            if any(
                len(json.loads(file.read_text())["epochs"]) >= number
                for file in self.runs().glob("*/record.json")
            ):
                return
            time.sleep(0.05)
        raise TimeoutError(f"No run came to epoch {number}.")


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def is_alive(pid: int) -> bool:
    try:
        # A process that nobody has waited for yet is as good as gone.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition) -> bool:
    return any(condition() or time.sleep(0.05) for _ in range(100))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A study of which two runs fail, done and done again."""
    place = Place(tmp_path_factory.mktemp("mixed"))
    place.design("[[runs]]\nseed = [1, 13, 2, 14]\nautotune = [false, true]")
    return place, place.run(), place.run(), place.command("status", "runs/mine")


def test_a_failed_run_is_reported_and_stops_no_other(mixed):
    place, (status, out, err), _, _ = mixed
    assert status == 1
    assert "2 runs finished, 2 failed, 4 not applicable." in out
    assert "2/4  FAILED    torch cpu, seed 13, autotune False" in out
    assert "| failed: thirteen" in out
    assert "| It ended well, but left no finished record." in out
    assert err.count("  failed: runs/mine/torch-cpu") == 2
    assert [s[0].split("-seed")[1].split("-")[0] for s in place.starts()[:4]] == [
        *("1", "13", "2", "14")
    ]


def test_finished_runs_are_not_repeated_and_failed_ones_are(mixed):
    place, _, (status, out, _), _ = mixed
    assert status == 1
    assert "2 runs finished, 2 failed" in out
    assert sorted(s[0].split("-seed")[1].split("-")[0] for s in place.starts()[4:]) == ["13", "14"]


def test_status_shows_how_far_each_run_has_come(mixed):
    _, _, _, (status, out, err) = mixed
    assert (status, err) == (0, "")
    assert "4 not applicable, 2 finished, 2 failed." in out
    assert "torch      cpu     1          1  finished   10/10  15 s" in out
    assert "torch      cpu     13         1  failed      0/10" in out
    assert (
        "FAILED  torch cpu, seed 13, autotune False: runs/mine" not in out
    )  # the name of its folder
    assert "  | failed: thirteen" in out
    assert "4  mine  --autotune lets cuDNN or XLA time kernels on an NVIDIA GPU" in out


def test_each_run_has_a_log_that_says_how_to_repeat_it(mixed):
    place, *_ = mixed
    (log,) = place.runs().glob("*seed1-*/log.txt")
    command, said = log.read_text().splitlines()
    assert command.startswith("$ ")
    assert "--seed 1 " in command
    assert "--optimizer adam" in command
    assert said == "training, or so it says"


def test_jobs_run_at_once_and_share_the_threads(place):
    from parity.platforms import available_threads

    if available_threads() < 2:
        pytest.skip("needs two cores")
    place.design("[base]\nepochs = 2\n[[runs]]\nseed = [1, 2]")
    process = place.start(jobs=2, seconds=1.0)
    assert wait_until(lambda: place.trace.exists() and len(place.starts()) == 2)
    assert all(is_alive(int(pid)) for _, pid, _, _ in place.starts())
    _, out, _ = place.command("status", "runs/mine")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert "2 running." in out
    assert "since" in out
    share = available_threads() // 2
    assert [int(threads) for _, _, _, threads in place.starts()] == [share, share]
    _, out, _ = place.run()
    assert f"note: finished runs had {share} threads, these get {available_threads()}." in out


def test_threads_that_a_design_sets_are_its_own(place):
    place.design("[[runs]]\nthreads = 1")
    assert place.run()[0] == 0
    assert [s[3] for s in place.starts()] == ["1"]


def test_kill_9_loses_the_run_in_flight_alone_and_it_resumes(place):
    place.design("[base]\nepochs = 4\n[[runs]]\nseed = [1, 2]")
    process = place.start(seconds=0.5)
    place.wait_for_epochs(2)
    process.kill()
    process.communicate(timeout=60)
    ((_, pid, _, _),) = place.starts()
    assert wait_until(lambda: not is_alive(int(pid))), "the training process outlived the study"
    _, out, _ = place.command("status", "runs/mine")
    assert "2 waiting." in out
    assert place.run()[:1] == (0,)
    first, resumed, second = place.starts()
    assert first[0] == resumed[0] != second[0]
    assert int(resumed[2]) >= 2
    assert {read_record(p).status for p in place.runs().glob("torch-*")} == {"finished"}


def test_ctrl_c_stops_the_run_in_flight_and_says_how_to_go_on(place):
    place.design("[base]\nepochs = 4\n[[runs]]\nseed = [1, 2]")
    process = place.start(seconds=0.5)
    place.wait_for_epochs(1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == (
        "stopped; 0 of 2 runs are finished. Go on with: python -m parity.study run runs/mine\n"
    )
    ((name, pid, _, _),) = place.starts()
    assert not is_alive(int(pid))
    assert "Traceback" not in (place.runs() / name / "log.txt").read_text()
    status, out, _ = place.run("runs/mine")
    assert status == 0
    assert "2 runs finished, 0 failed" in out


def test_two_studies_on_one_folder_share_its_runs(place):
    place.design("[base]\nepochs = 2\n[[runs]]\nseed = [1, 2, 3, 13, 4]")
    both = [place.start(seconds=0.3) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 1, err
        assert "4 runs finished, 1 failed" in out
    folders_begun = [s[0] for s in place.starts()]
    finished = [f for f in folders_begun if "seed13" not in f]
    assert sorted(finished) == sorted(set(finished))
    assert len(finished) == 4


def test_a_run_that_was_started_by_hand_is_waited_for(place):
    place.design("[base]\nepochs = 3\n[[runs]]\nseed = 1")
    first = place.start(seconds=60)
    assert wait_until(lambda: place.trace.exists() and len(place.starts()) == 1)
    first.kill()
    first.communicate(timeout=60)
    ((name, pid, _, _),) = place.starts()
    assert wait_until(lambda: not is_alive(int(pid)))
    path = place.runs() / name
    env = place.env | {"FAKE_SECONDS": "1"}
    by_hand = subprocess.Popen(
        [sys.executable, "-m", "fake_train", "--resume", str(path), "--quiet"],
        env=env,
        cwd=place.folder,
        stdout=subprocess.DEVNULL,
    )
    assert wait_until(lambda: len(place.starts()) == 2)
    status, out, err = place.run()
    assert by_hand.wait(60) == 0
    assert (status, err) == (0, "")
    assert len(place.starts()) == 2
    assert "1 runs finished, 0 failed" in out


def test_a_folder_whose_record_is_another_run_fails_with_its_reason(place):
    place.design("[base]\nepochs = 1\n[[runs]]\nseed = [1, 2]")
    assert place.run()[0] == 0
    one, two = sorted(place.runs().glob("torch-*"))
    (two / "record.json").write_text((one / "record.json").read_text())
    status, out, _ = place.run()
    assert status == 1
    assert "holds another run: its seed is 1, the plan's 2. Move that folder away." in out
    (two / "record.json").write_text("{")
    status, out, _ = place.run()
    assert status == 1
    assert "is no whole record" in out


def test_a_study_is_left_alone_by_another_design(place):
    place.design("[base]\nepochs = 1\n[[runs]]\nseed = 1")
    assert place.run()[0] == 0
    place.design("[base]\nepochs = 1\n[[runs]]\nseed = 2")
    status, _, err = place.run()
    assert status == 2
    assert "runs/mine holds another study: its design differs. Go on with that one" in err
    assert folders.read(place.runs()).design.blocks[0].factors == {"seed": (1,)}


def test_without_a_finished_run_the_time_left_is_unknown():
    assert Estimate().seconds_left([a_run("torch")], [], 1) is None


def test_the_time_left_follows_what_runs_of_the_same_framework_took():
    estimate = Estimate()
    for framework, seconds in (("torch", 10.0), ("torch", 20.0), ("jax", 60.0)):
        estimate.learn(a_run(framework), an_attempt(seconds=seconds))
    # Neither a run that was resumed nor one that never ended tells what a run takes.
    estimate.learn(a_run("torch"), an_attempt(seconds=1.0, first_epoch=3))
    estimate.learn(a_run("torch"), an_attempt(seconds=None))
    estimate.learn(a_run("torch"), None)
    torch, jax = a_run("torch"), a_run("jax")
    assert estimate.seconds_left([torch, jax], [(torch, 5.0)], 1) == 15 + 60 + 10
    assert estimate.seconds_left([torch, jax], [(torch, 5.0)], 5) == (15 + 60 + 10) / 5
    assert estimate.seconds_left([], [(jax, 5.0), (torch, 99.0)], 2) == 55
    elsewhere = a_run("torch", device="gpu")
    assert estimate.seconds_left([elsewhere], [], 1) == 30  # the mean of all three


def a_run(framework, device="cpu") -> PlannedRun:
    choices = Choices(frameworks=(framework,), on=(device,))
    (run,) = plan(parse({"name": "x", "runs": [{}]}, "x"), choices, "local")
    return run


def an_attempt(*, seconds, first_epoch=1) -> Attempt:
    return Attempt(began=0.0, host="h", threads=1, first_epoch=first_epoch, seconds=seconds)


def test_runs_share_a_cpu_and_have_an_accelerator_for_themselves(monkeypatch):
    monkeypatch.setattr(local, "available_threads", lambda: 8)
    backend = local.Local(data_dir=None, jobs=3)
    gpu, other, cpu = (a_run("torch", device=name) for name in ("gpu:0", "gpu:1", "cpu"))
    assert backend.has_room(cpu, [cpu, gpu])
    assert backend.has_room(other, [cpu, gpu])
    assert not backend.has_room(gpu, [cpu, gpu])
    assert not backend.has_room(cpu, [cpu, cpu, gpu])
    assert backend.threads == 2
