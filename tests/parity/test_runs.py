import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp

from parity import runs
from parity.config import TrainConfig
from parity.errors import UserError
from parity.runs import Epoch, RunRecord


def epoch(number: int) -> Epoch:
    return Epoch(
        epoch=number,
        train_loss=1.5,
        train_accuracy=50.0,
        test_loss=1.4,
        test_accuracy=55.0,
        weights_sha256="ab" * 32,
        train_seconds=1.0,
        test_seconds=0.1,
        step_losses=runs.encode_losses(np.array([2.0, 1.5], np.float32)),
    )


@pytest.fixture
def record(tmp_path) -> RunRecord:
    return RunRecord(
        config=TrainConfig(dataset="digits", epochs=2, data_dir=tmp_path),
        environments=({"first_epoch": 1, "framework": "torch", "platform": "cpu"},),
        fingerprints={"data": "d", "stream": "s", "initial_weights": "w"},
        epochs=(epoch(1), epoch(2)),
        path=tmp_path,
    )


def test_what_is_written_is_read(record):
    runs.write_record(record)
    assert runs.read_record(record.path) == record
    assert runs.read_record(record.path / "record.json") == record


@given(hnp.arrays(np.float32, 7))
def test_losses_keep_their_bits(losses):
    assert runs.decode_losses(runs.encode_losses(losses), "float32").tobytes() == losses.tobytes()


def test_a_loss_reads_as_its_ieee_pattern():
    assert runs.encode_losses(np.array([1.0], np.float32)) == "3f800000"
    assert runs.encode_losses(np.array([1.0], np.float64)) == "3ff0000000000000"


def test_files_are_checked_against_the_record(record):
    record = runs.write_file(record, runs.PREDICTIONS, npy(np.arange(5, dtype=np.uint8)))
    predictions = record.predictions()
    assert predictions is not None
    assert predictions.tolist() == [0, 1, 2, 3, 4]
    path = record.path / runs.PREDICTIONS
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="not the file that the run wrote"):
        record.predictions()
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        record.predictions()


def npy(array: np.ndarray) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def altered(record, change) -> None:
    runs.write_record(record)
    path = record.path / "record.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(schema="training-parity/run/2"), "reads 'training-parity/run/1'"),
        (lambda c: c.pop("schema"), "schema None"),
        (lambda c: c.update(colour="blue"), "colour"),
        (lambda c: c.pop("epochs"), "epochs"),
        (lambda c: c["config"].update(warmup=3), "warmup.*newer"),
        (lambda c: c["config"].update(optimizer="lion"), "lion"),
        (lambda c: c.update(status="paused"), "paused"),
        (lambda c: c["epochs"].pop(0), "epochs are not 1, 2, 3"),
        (lambda c: c["epochs"][0].update(test_loss=float("nan")), "no finite number"),
        (lambda c: c["epochs"][0].update(test_loss="1.4"), "no finite number"),
        (lambda c: c["epochs"][0].pop("test_loss"), "test_loss"),
        (lambda c: c["epochs"][0].update(step_losses="3f80"), "form"),
        (lambda c: c["fingerprints"].pop("data"), "fingerprint"),
        (lambda c: c["environments"][0].pop("platform"), "environment"),
    ],
)
def test_a_record_of_another_form_is_refused_with_its_name(record, change, message):
    altered(record, change)
    with pytest.raises(UserError, match=message) as raised:
        runs.read_record(record.path)
    assert "record.json" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"3"])
def test_a_broken_record_is_refused_with_its_name(tmp_path, content):
    (tmp_path / "record.json").write_bytes(content)
    with pytest.raises(UserError, match=r"record\.json"):
        runs.read_record(tmp_path)


def test_every_truncation_of_a_record_is_refused(record):
    runs.write_record(record)
    path = record.path / "record.json"
    content = path.read_bytes().rstrip()
    for cut in range(0, len(content), 97):
        path.write_bytes(content[:cut])
        with pytest.raises(UserError):
            runs.read_record(record.path)


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(UserError, match="There is no run in"):
        runs.read_record(tmp_path / "nothing")


def test_only_one_process_writes_a_run(tmp_path):
    with (
        runs.sole_writer(tmp_path),
        pytest.raises(UserError, match="Another process"),
        runs.sole_writer(tmp_path),
    ):
        pass
    with runs.sole_writer(tmp_path):
        pass


def test_a_run_that_changed_framework_says_so(record):
    jax = {"first_epoch": 2, "framework": "jax", "platform": "cpu:avx2"}
    moved = replace(record, environments=(*record.environments, jax, jax))
    assert (moved.frameworks, moved.platforms) == ("torch->jax", "cpu->cpu:avx2")
