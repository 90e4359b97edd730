"""A run survives whatever befalls it: kills, full disks, NaN, altered files.

The trainer is a fake in NumPy, whose state has canonical names and few values; everything else is
the real thing, from `launch.run` down to the files.
"""

import errno
import os
import stat
import threading
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from parity import launch, loop, runs, start, weights
from parity.architecture import BUFFERS, NUM_CLASSES, PARAMETERS, initial_weights
from parity.config import TrainConfig
from parity.data import pipeline
from parity.data.dataset import Dataset, Split, canonical
from parity.data.pipeline import Batch
from parity.errors import RunFailed, UserError
from parity.optimizers import STEP, slot_name
from parity.runs import RunRecord
from parity.trainer import NonFinite, Output

TORCH = {"framework": "torch", "platform": "cpu"}
JAX = {"framework": "jax", "platform": "cpu:avx2"}
NUM_EPOCHS = 3
STEPS_PER_EPOCH = 3  # 5 + 5 + 2 images
TEST_STEPS = 2  # 5 + 2 images


class Killed(BaseException):
    """What SIGKILL is to a process: nothing catches it."""


class FakeTrainer:
    """Updates that depend on every part of the state and of the batch, and on nothing else."""

    holds_images = False

    def __init__(self, *, before_step=None) -> None:
        self._before_step = before_step or (lambda trainer, kind, count: None)
        self._counts = {"train": 0, "test": 0}
        self.tensors: dict[str, np.ndarray] = {}

    def environment(self):
        return {}

    def load(self, state):
        self.tensors = {name: array.copy() for name, array in state.items()}

    def state(self):
        return {name: array.copy() for name, array in self.tensors.items()}

    def _output(self, batch) -> Output:
        dtype = self.tensors["fc2.bias"].dtype
        mean = np.mean([array.mean() for array in self.tensors.values()])
        pixels = batch.images.mean((1, 2, 3), dtype=np.float64)
        logits = np.outer(pixels, np.cos(np.arange(NUM_CLASSES) * (1 + mean)))
        loss = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(pixels)), batch.labels]
        return Output(loss.mean().astype(dtype), logits.astype(dtype))

    def train_step(self, batch):
        self._counts["train"] += 1
        self._before_step(self, "train", self._counts["train"])
        output = self._output(batch)
        gradient = float(output.loss) + batch.keep.mean() + batch.images.std(dtype=np.float64)
        for number, name in enumerate(PARAMETERS):
            buffer = self.tensors[slot_name("momentum_buffer", name)]
            buffer[...] = 0.9 * buffer + gradient / (1 + number)
            self.tensors[name] -= 0.01 * buffer
        for name in BUFFERS:
            if name.endswith("num_batches_tracked"):
                self.tensors[name] += 1
            else:
                self.tensors[name][...] = 0.9 * self.tensors[name] + 0.1 * gradient
        self.tensors[STEP] += 1
        return output

    def test_step(self, batch):
        self._counts["test"] += 1
        self._before_step(self, "test", self._counts["test"])
        return self._output(batch)


def make_dataset(seed: int = 0) -> Dataset:
    random = np.random.default_rng(seed)
    train, test = (
        Split(random.integers(0, 256, (n, 32, 32, 3), np.uint8), (np.arange(n) % 10).astype("u1"))
        for n in (12, 7)
    )
    half = (0.5, 0.5, 0.5)
    return canonical(name="random", source="test", train=train, test=test, mean=half, std=half)


def few_weights(seed: int) -> dict[str, np.ndarray]:
    """Return two values for each of SimpleCNN's tensors."""
    return {
        name: np.zeros((), np.int64)
        if name.endswith("num_batches_tracked")
        else np.array([number, seed], np.float32) / 64
        for number, name in enumerate(PARAMETERS | BUFFERS)
    }


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Make data set and network small, and see that no thread is left."""
    dataset = make_dataset()
    monkeypatch.setattr(start, "load", lambda config, source: dataset)
    monkeypatch.setattr(pipeline, "initial_weights", few_weights)
    yield
    assert [t.name for t in threading.enumerate() if t.name == "prefetch"] == []


def go(
    out: Path,
    trainer: FakeTrainer | None = None,
    *,
    resume: Path | None = None,
    environment=TORCH,
    **config,
) -> RunRecord:
    """Begin a run in `out` or go on with the one in `resume`, and return its record."""
    out.mkdir(exist_ok=True)
    settings = TrainConfig(
        **{
            "dataset": "digits",
            "optimizer": "sgd",
            "batch_size": 5,
            "epochs": NUM_EPOCHS,
            "quiet": True,
            "out": out,
        }
        | config
    )
    earlier = None if resume is None else runs.read_record(resume)
    launch.run(trainer or FakeTrainer(), settings, earlier, environment, "binary")
    return runs.read_record(out)


def go_on(out: Path, **config) -> RunRecord:
    """Do what a user does after a kill: resume, or begin again where no record was written yet."""
    if not (out / runs.RECORD).exists():
        return go(out, **config)
    record = runs.read_record(out)
    # `launch.main` has nothing to do with a finished run.
    return record if record.status == "finished" else go(out, resume=out, **config)


def essence(record: RunRecord) -> dict:
    """Return what a run yielded: all of its record but clocks, places and environments."""
    content = asdict(replace(record, path=Path(), environments=()))
    for epoch in content["epochs"]:
        del epoch["train_seconds"], epoch["test_seconds"]
    del content["config"]["out"]
    predictions, final = record.predictions(), record.final_weights()
    assert predictions is not None
    assert final is not None
    return content | {"predictions": predictions.tolist(), "weights": weights.digest(final)}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def whole(tmp_path) -> RunRecord:
    """A run that nothing befell."""
    return go(tmp_path / "whole")


class Disk:
    """Counts the calls that change a folder, and makes one of them the last or a failing one."""

    def __init__(self, monkeypatch) -> None:
        self.calls: list[str] = []
        self.act = lambda count, name, arguments: None
        for name in ("fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name, real):
        def call(*arguments, **options):
            self.calls.append(name)
            self.act(len(self.calls), name, arguments)
            return real(*arguments, **options)

        return call

    def reset(self, act=lambda count, name, arguments: None) -> None:
        self.calls, self.act = [], act

    def kill_at(self, last: int) -> None:
        """Let the process die before call number `last`, and no later call be made either.

        A file that was about to be flushed keeps half of its bytes.
        """

        def act(count, name, arguments):
            if count == last and name == "fsync":
                file = os.fstat(arguments[0])
                if stat.S_ISREG(file.st_mode):  # else it is the folder
                    os.ftruncate(arguments[0], file.st_size // 2)
            if count >= last:
                raise Killed

        self.reset(act)

    def full_at(self, first: int, *, for_good: bool) -> None:
        """Let no space be left when the `first` file or folder is flushed, once or from then on."""

        def act(count, name, arguments):
            flushes = self.calls.count("fsync")
            if name == "fsync" and (flushes == first or (for_good and flushes > first)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self.reset(act)


@pytest.fixture
def disk(monkeypatch) -> Disk:
    return Disk(monkeypatch)


def num_calls(disk: Disk, tmp_path: Path) -> list[str]:
    """Return the calls of a whole run."""
    disk.reset()
    go(tmp_path / "counted")
    return list(disk.calls)


def lost_runs(disk: Disk, tmp_path: Path, expected: dict) -> list[int]:
    """Kill a run at each of its writes and return those after which it did not come to its end."""
    lost = []
    for last in range(1, len(num_calls(disk, tmp_path)) + 1):
        folder = tmp_path / f"killed-{last}"
        disk.kill_at(last)
        with pytest.raises(Killed):
            go(folder)
        disk.reset()
        try:
            came = essence(go_on(folder))
        except UserError:
            came = None
        if came != expected:
            lost.append(last)
    return lost


def test_a_run_killed_at_any_write_resumes_to_the_same_end(disk, tmp_path, whole):
    calls = num_calls(disk, tmp_path)
    # A record at the start; checkpoint and record an epoch; predictions, weights, record at the
    # end: each flushed, renamed, its folder flushed. A checkpoint removed an epoch.
    assert calls.count("replace") == 1 + 2 * NUM_EPOCHS + 3
    assert calls.count("fsync") == 2 * calls.count("replace")
    assert calls.count("unlink") == NUM_EPOCHS
    assert lost_runs(disk, tmp_path, essence(whole)) == []


def in_place(path, write):
    with path.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def test_a_record_written_in_place_would_be_lost(disk, tmp_path, whole, monkeypatch):
    monkeypatch.setattr(runs, "write_atomically", in_place)
    assert lost_runs(disk, tmp_path, essence(whole))


def test_a_record_written_before_its_checkpoint_would_be_lost(disk, tmp_path, whole, monkeypatch):
    def commit(record, figures, state):
        name = f"checkpoint-{figures.epoch}.safetensors"
        content = weights.to_bytes(state, {"epoch": str(figures.epoch)})
        sha = {name: runs.hashlib.sha256(content).hexdigest()}
        later = replace(record, epochs=(*record.epochs, figures), checkpoint=name, files=sha)
        runs.write_record(later)
        runs.write_file(later, name, content)
        if record.checkpoint is not None:
            (record.path / record.checkpoint).unlink()
        return later

    monkeypatch.setattr(loop, "_commit", commit)
    assert lost_runs(disk, tmp_path, essence(whole))


@pytest.mark.parametrize(
    ("kind", "count"),
    [("train", n) for n in range(1, 1 + NUM_EPOCHS * STEPS_PER_EPOCH)]
    + [("test", n) for n in range(1, 1 + NUM_EPOCHS * TEST_STEPS)],
)
def test_a_run_killed_in_any_step_resumes_to_the_same_end(tmp_path, whole, kind, count):
    def die(trainer, *place):
        if place == (kind, count):
            raise Killed

    with pytest.raises(Killed):
        go(tmp_path / "killed", FakeTrainer(before_step=die))
    assert essence(go_on(tmp_path / "killed")) == essence(whole)


def test_a_run_killed_again_and_again_comes_to_the_same_end(disk, tmp_path, whole):
    kills = 0
    while True:
        # One write more each time, so that every process gets a little further than nothing.
        disk.kill_at(8 + kills)
        try:
            record = go_on(tmp_path / "killed")
            break
        except Killed:
            kills += 1
    assert kills >= 3
    assert essence(record) == essence(whole)


def test_float64_runs_resume_to_the_same_end_too(disk, tmp_path):
    expected = essence(go(tmp_path / "double", arithmetic="float64"))
    assert len(expected["epochs"][0]["step_losses"]) == 16 * STEPS_PER_EPOCH
    disk.kill_at(15)
    with pytest.raises(Killed):
        go(tmp_path / "killed", arithmetic="float64")
    disk.reset()
    assert essence(go_on(tmp_path / "killed", arithmetic="float64")) == expected


def unfinished(folder: Path, *, after: int = 1, environment=TORCH) -> RunRecord:
    """Leave a run whose process died in the epoch after epoch `after`."""

    def die(trainer, *place):
        if place == ("train", after * STEPS_PER_EPOCH + 2):
            raise Killed

    with pytest.raises(Killed):
        go(folder, FakeTrainer(before_step=die), environment=environment)
    return runs.read_record(folder)


def test_a_finished_run_holds_its_record_and_two_files(whole):
    assert names(whole.path) == {runs.RECORD, runs.WEIGHTS, runs.PREDICTIONS}


def test_an_unfinished_run_holds_its_record_and_one_checkpoint(tmp_path):
    record = unfinished(tmp_path / "run", after=2)
    assert (record.status, len(record.epochs)) == ("running", 2)
    assert names(record.path) == {runs.RECORD, "checkpoint-2.safetensors"}


def test_leftovers_of_a_kill_do_no_harm(tmp_path, whole):
    folder = unfinished(tmp_path / "run").path
    leftovers = {
        "checkpoint-9.safetensors": b"an old one",
        ".record.json.123.partial": b'{"schema": "train',
        ".checkpoint-2.safetensors.123.partial": b"half",
    }
    for name, content in leftovers.items():
        (folder / name).write_bytes(content)
    # Written whole, but the record that names it was not.
    (folder / "checkpoint-2.safetensors").write_bytes(b"another's")
    record = go_on(folder)
    assert essence(record) == essence(whole)
    assert names(folder) == names(whole.path) | set(leftovers)


@pytest.mark.parametrize("for_good", [False, True])
def test_a_full_disk_is_told_and_the_run_goes_on_when_there_is_room(
    disk, tmp_path, whole, for_good
):
    flushes = num_calls(disk, tmp_path).count("fsync")
    for first in range(1, flushes + 1):
        folder = tmp_path / f"full-{first}"
        disk.full_at(first, for_good=for_good)
        # The first record is one file: before it is there, nothing is to be resumed.
        error, advice = (
            (UserError, r"Make room there, or choose another place\.$")
            if first <= 2
            else (RunFailed, rf"make room, then add --resume {folder}\.$")
        )
        with pytest.raises(error, match=advice) as raised:
            go(folder)
        assert f"{folder} cannot be written (No space left on device)" in str(raised.value)
        assert not [name for name in names(folder) if name.endswith(".partial")]
        disk.reset()
        assert essence(go_on(folder)) == essence(whole)


def test_a_full_disk_says_how_many_epochs_are_kept(disk, tmp_path):
    def full(count, name, arguments):
        if (tmp_path / "run" / "checkpoint-2.safetensors").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.reset(full)
    with pytest.raises(RunFailed, match="It still holds 1 finished epochs"):
        go(tmp_path / "run")
    assert len(runs.read_record(tmp_path / "run").epochs) == 1


class OnDevice(FakeTrainer):
    """The same updates, of batches that it makes itself."""

    holds_images = True

    def place(self, dataset):
        self._dataset = dataset

    def _batches(self, split, draws):
        pixels, labels = (getattr(self._dataset, f"{split}_{n}") for n in ("images", "labels"))
        table = pipeline.lookup_table(self._dataset)
        for step, chosen in enumerate(draws.chosen):
            crops, keep = pixels[chosen], None
            if draws.keep_bits is not None:
                crops = pipeline.crop(crops, draws.offsets[step], draws.flips[step])
                keep = np.unpackbits(draws.keep_bits[step], axis=1, bitorder="little") > 0
            yield Batch(pipeline.normalise(crops, table), labels[chosen].astype(np.int32), keep)

    def train_steps(self, draws):
        outputs = [FakeTrainer.train_step(self, batch) for batch in self._batches("train", draws)]
        return Output(*map(np.stack, zip(*outputs, strict=True)))

    def test_steps(self, draws):
        outputs = [FakeTrainer.test_step(self, batch) for batch in self._batches("test", draws)]
        return Output(*map(np.stack, zip(*outputs, strict=True)))

    def train_step(self, batch):
        raise AssertionError("the device takes its steps by the stretch")

    test_step = train_step


def test_a_run_whose_images_lie_on_the_device_is_the_run(tmp_path, whole):
    assert essence(go(tmp_path / "run", OnDevice())) == essence(whole)


def test_on_a_device_too_a_nan_loss_names_epoch_step_and_tensor(tmp_path):
    class Diverging(OnDevice):
        """Its fifth update's loss is NaN, and so is all that follows."""

        def _output(self, batch):
            loss, logits = super()._output(batch)
            return Output(loss if self.tensors[STEP] < 4 else loss * np.nan, logits)

        def train_step(self, batch):
            if self.tensors[STEP] == 4:
                raise NonFinite("output of conv2")
            return FakeTrainer.train_step(self, batch)

    folder = tmp_path / "run"
    with pytest.raises(RunFailed, match=r"^output of conv2 is NaN .* in epoch 2, step 2\."):
        go(folder, Diverging())
    record = runs.read_record(folder)
    assert (record.status, len(record.epochs)) == ("failed", 1)


def test_the_articles_batches_come_from_the_host_on_a_device_too(tmp_path, whole):
    class ArticlePipeline:
        """Not our own, though its draws are."""

        def __init__(self, seed):
            own = pipeline.OwnPipeline(seed)
            self.initial_weights, self.fingerprint = own.initial_weights, own.fingerprint
            self.train_batches = own.train_batches

    class Host(FakeTrainer):
        holds_images = True

    settings = replace(whole.config, out=tmp_path / "run")
    (tmp_path / "run").mkdir()
    launch.run(Host(), settings, None, TORCH, "binary", ArticlePipeline(settings.seed))
    assert essence(runs.read_record(tmp_path / "run")) == essence(whole)


def test_a_nan_loss_names_epoch_step_and_tensor_and_keeps_what_was_before(tmp_path, whole):
    def diverge(trainer, *place):
        if place == ("train", STEPS_PER_EPOCH + 2):
            raise NonFinite("output of conv2")

    folder = tmp_path / "run"
    message = r"^output of conv2 is NaN or infinite in epoch 2, step 2\. Try a smaller --lr"
    with pytest.raises(RunFailed, match=message) as raised:
        go(folder, FakeTrainer(before_step=diverge))
    record = runs.read_record(folder)
    assert (record.status, len(record.epochs)) == ("failed", 1)
    assert record.failure == {
        "message": str(raised.value),
        "epoch": 2,
        "step": 2,
        "tensor": "output of conv2",
    }
    # What diverged in one framework or on one device may go on in another.
    assert essence(go_on(folder)) == essence(whole)


def test_a_nan_loss_before_any_update_is_not_blamed_on_the_learning_rate(tmp_path):
    def diverge(trainer, *place):
        raise NonFinite("output of conv2")

    message = r"epoch 1, step 1, before any update\. Try other initial weights{}\.$"
    for arithmetic, remedy in (("float32", ", or --arithmetic float64"), ("float64", "")):
        trainer = FakeTrainer(before_step=diverge)
        with pytest.raises(RunFailed, match=message.format(remedy)):
            go(tmp_path / arithmetic, trainer, arithmetic=arithmetic)


def doubled(tmp_path: Path, **changes: np.ndarray) -> Path:
    """Return a file of initial weights in float64."""
    tensors = {
        name: array if array.dtype == np.int64 else array.astype(np.float64)
        for name, array in initial_weights(1).items()
    }
    path = tmp_path / "double.safetensors"
    weights.save(path, tensors | changes)
    return path


def test_float64_weights_that_are_rounded_are_told_of_once(tmp_path, capsys):
    def told(path, **config):
        go(tmp_path / f"run-{len(names(tmp_path))}", init_weights=path, quiet=False, **config)
        return [line for line in capsys.readouterr().out.splitlines() if "note:" in line]

    assert told(doubled(tmp_path)) == []  # every value is one of float32's, too
    path = doubled(tmp_path, **{"fc2.bias": np.full(10, 0.1), "fc1.bias": np.full(256, 0.3)})
    assert told(path) == [f"note: 2 of 25 tensors of {path} are float64, and rounded to float32"]
    assert told(path, arithmetic="float64") == []


def test_float64_weights_beyond_float32_are_refused_by_name(tmp_path):
    path = doubled(tmp_path, **{"fc2.bias": np.full(10, -1e300)})
    with pytest.raises(UserError, match=rf"fc2\.bias in {path} holds 1e\+300, which float32 has n"):
        go(tmp_path / "run", init_weights=path)


@pytest.mark.parametrize(
    "name", [slot_name("momentum_buffer", "fc1.bias"), "bn2.running_var", "conv3.weight"]
)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_tensor_that_is_not_finite_after_the_epoch_fails_the_run(tmp_path, name, value):
    class Poisoned(FakeTrainer):
        def state(self):
            state = super().state()
            if state[STEP] == 2 * STEPS_PER_EPOCH:  # no loss tells of it
                state[name][0] = value
            return state

    with pytest.raises(RunFailed, match=f"^{name} is NaN or infinite in epoch 2, step 3"):
        go(tmp_path / "run", Poisoned())
    record = runs.read_record(tmp_path / "run")
    assert (record.status, len(record.epochs)) == ("failed", 1)
    assert record.failure is not None
    assert record.failure["tensor"] == name
    assert names(record.path) == {runs.RECORD, "checkpoint-1.safetensors"}


def test_a_test_loss_that_is_not_finite_fails_the_run(tmp_path):
    class Overflowing(FakeTrainer):
        def test_step(self, batch):
            return super().test_step(batch)._replace(loss=np.float32("nan"))

    with pytest.raises(RunFailed, match="test loss is NaN or infinite in epoch 1, step 3"):
        go(tmp_path / "run", Overflowing())


def test_one_flipped_byte_anywhere_in_a_checkpoint_is_refused(tmp_path):
    folder = unfinished(tmp_path / "run").path
    path = folder / "checkpoint-1.safetensors"
    content = path.read_bytes()
    before = (folder / runs.RECORD).read_bytes()
    assert b"optimizer.momentum_buffer.fc1.bias" in content
    for place in range(0, len(content), 37):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(UserError, match=r"checkpoint-1\.safetensors is not the file that"):
            go_on(folder)
    assert (folder / runs.RECORD).read_bytes() == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 100)])
def test_a_missing_or_truncated_checkpoint_is_refused(tmp_path, damage):
    folder = unfinished(tmp_path / "run").path
    damage(folder / "checkpoint-1.safetensors")
    with pytest.raises(UserError, match=r"checkpoint-1\.safetensors .*Restore the file"):
        go_on(folder)


def other_data(monkeypatch):
    monkeypatch.setattr(start, "load", lambda config, source: make_dataset(1))


def other_stream(monkeypatch):
    monkeypatch.setattr(pipeline.streams, "VERSION", 999)


def other_weights(monkeypatch):
    monkeypatch.setattr(pipeline, "initial_weights", lambda seed: few_weights(seed + 1))


@pytest.mark.parametrize(
    ("change", "name"),
    [(other_data, "data"), (other_stream, "stream"), (other_weights, "initial weights")],
)
def test_a_run_does_not_go_on_with_other_inputs(tmp_path, monkeypatch, change, name):
    folder = unfinished(tmp_path / "run").path
    before = snapshot(folder)
    change(monkeypatch)
    with pytest.raises(UserError, match=f"had another {name} fingerprint, "):
        go_on(folder)
    assert snapshot(folder) == before


def test_a_resumed_run_keeps_the_environments_of_both_processes(tmp_path):
    folder = unfinished(tmp_path / "run", after=2).path
    record = go_on(folder, environment=JAX)
    assert record.environments == (TORCH | {"first_epoch": 1}, JAX | {"first_epoch": 3})
    assert (record.frameworks, record.platforms) == ("torch->jax", "cpu->cpu:avx2")


def test_a_process_that_finished_no_epoch_is_not_among_the_environments(tmp_path):
    folder = unfinished(tmp_path / "run", after=0, environment=JAX).path
    assert go_on(folder).environments == (TORCH | {"first_epoch": 1},)


def test_a_fork_leaves_the_old_folder_as_it_was_to_the_byte(tmp_path, whole):
    old = unfinished(tmp_path / "old", after=2).path
    before = snapshot(old)
    record = go(tmp_path / "new", resume=old)
    assert essence(record) == essence(whole)
    assert snapshot(old) == before


def test_a_fork_killed_at_any_write_can_be_made_again_or_go_on(disk, tmp_path, whole):
    old = unfinished(tmp_path / "old", after=2).path
    before = snapshot(old)
    disk.reset()
    go(tmp_path / "counted", resume=old)
    for last in range(1, len(disk.calls) + 1):
        new = tmp_path / f"new-{last}"
        disk.kill_at(last)
        with pytest.raises(Killed):
            go(new, resume=old)
        disk.reset()
        record = go_on(new) if (new / runs.RECORD).exists() else go(new, resume=old)
        assert essence(record) == essence(whole)
    assert snapshot(old) == before


def test_a_full_disk_at_the_fork_is_told(disk, tmp_path):
    old = unfinished(tmp_path / "old").path
    disk.full_at(1, for_good=True)
    with pytest.raises(UserError, match=r"new cannot be written.*Make room there"):
        go(tmp_path / "new", resume=old)


def test_the_figures_are_the_articles_means_over_the_epochs_own_batches(tmp_path):
    seen: dict[str, list] = {"train": [], "test": []}

    class Watched(FakeTrainer):
        def train_step(self, batch):
            output = super().train_step(batch)
            seen["train"].append((output, batch.labels))
            return output

        def test_step(self, batch):
            output = super().test_step(batch)
            seen["test"].append((output, batch.labels))
            return output

    record = go(tmp_path / "run", Watched(), epochs=1)
    (epoch,) = record.epochs
    for name, loss, accuracy, num_images in (
        ("train", epoch.train_loss, epoch.train_accuracy, 12),
        ("test", epoch.test_loss, epoch.test_accuracy, 7),
    ):
        losses = [float(output.loss) for output, _ in seen[name]]
        # Not weighted by batch size; float64 sums of so few values may differ in the last bit.
        assert loss == pytest.approx(sum(losses) / len(losses), rel=1e-15)
        correct = sum(
            int(np.sum(output.logits.argmax(1) == labels)) for output, labels in seen[name]
        )
        assert accuracy == pytest.approx(100 * correct / num_images, rel=1e-15)
    assert record.step_losses().tolist() == [float(output.loss) for output, _ in seen["train"]]
    predictions = record.predictions()
    assert predictions is not None
    assert predictions.dtype == np.uint8
    assert predictions.tolist() == [int(n) for o, _ in seen["test"] for n in o.logits.argmax(1)]


def test_the_first_of_equal_logits_is_the_prediction(tmp_path):
    class Undecided(FakeTrainer):
        def _output(self, batch):
            return Output(np.float32(1), np.zeros((len(batch.labels), NUM_CLASSES), np.float32))

    predictions = go(tmp_path / "run", Undecided(), epochs=1).predictions()
    assert predictions is not None
    assert predictions.tolist() == [0] * 7


def test_an_epochs_digest_is_of_weights_and_buffers_alone(tmp_path):
    trainer = FakeTrainer()
    record = go(tmp_path / "run", trainer, epochs=1)
    model = {name: trainer.tensors[name] for name in PARAMETERS | BUFFERS}
    assert record.epochs[-1].weights_sha256 == weights.digest(model)
    final = record.final_weights()
    assert final is not None
    assert weights.digest(final) == weights.digest(model)


def test_an_interrupt_says_how_to_go_on(tmp_path, whole, capsys):
    def interrupt(trainer, *place):
        if place == ("train", 5):
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(SystemExit) as raised:
        go(folder, FakeTrainer(before_step=interrupt))
    assert raised.value.code == 130  # 128 + SIGINT, as shells have it
    assert capsys.readouterr().err == f"stopped; go on with --resume {folder}\n"
    assert essence(go_on(folder)) == essence(whole)
