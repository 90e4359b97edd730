import io
import json
from dataclasses import replace

import numpy as np
import pytest

from parity import results, runs
from parity.errors import UserError

ARTICLE = {name: [1.0, 2.0] for name in ("train_loss", "train_acc", "test_loss", "test_acc")}


@pytest.fixture
def write(tmp_path, make_record):
    """Return a function that writes a run or a file of the article below the test's folder."""

    def write(name: str, **fields):
        path = tmp_path / name
        if path.suffix == ".json":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(ARTICLE | fields))
        else:
            path.mkdir(parents=True)
            runs.write_record(replace(make_record(**fields), path=path))
        return path

    return write


def names(reading: results.Reading) -> list[str]:
    return [result.name for result in reading.results]


def test_folders_are_searched_recursively_and_hidden_ones_left_out(tmp_path, write):
    # What lies inside a run's folder belongs to the run.
    nested = ("a/one/backup", "a/one/train_z.json")
    for name in ("a/one", "b/c/two", ".trash/three", "train_x.json", "b/.train_y.json", *nested):
        write(name)
    reading = results.read([tmp_path])
    assert names(reading) == ["one", "two", "train_x"]
    assert [result.kind for result in reading.results] == ["run", "run", "article"]
    assert reading.skipped == []


def test_a_run_can_be_named_by_its_record_and_counts_once(tmp_path, write):
    path = write("one")
    assert names(results.read([path / runs.RECORD, path, tmp_path])) == ["one"]


def test_the_order_of_the_paths_changes_nothing(write):
    paths = [write(f"seed-{seed}", seed=seed) for seed in (10, 2, 1)]
    assert names(results.read(paths)) == names(results.read(paths[::-1]))
    assert names(results.read(paths)) == ["seed-1", "seed-2", "seed-10"]


def test_names_are_as_long_as_it_takes_to_tell_runs_apart(tmp_path, write):
    for name in ("a/one", "b/one", "b/two", "b/lr-0.1"):
        write(name)
    assert names(results.read([tmp_path])) == ["a/one", "lr-0.1", "b/one", "two"]


def test_what_is_no_result_is_named_and_skipped(tmp_path, write):
    write("good")
    broken = write("broken") / runs.RECORD
    broken.write_text(broken.read_text()[:100])
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("not even JSON")
    (tmp_path / "empty").mkdir()
    reading = results.read([tmp_path, tmp_path / "notes.txt", tmp_path / "empty"])
    assert names(reading) == ["good"]
    skipped = ("broken", "empty", "notes.json", "notes.txt")
    for name, message in zip(skipped, reading.skipped, strict=True):
        assert name in message


def test_the_projects_own_documents_are_passed_over_unless_named(tmp_path, write):
    write("good")
    own = tmp_path / "comparison.json"
    own.write_text('{"schema": "training-parity/comparison/1"}')
    assert results.read([tmp_path]).skipped == []
    assert len(results.read([tmp_path, own]).skipped) == 1


def test_nothing_to_compare_is_an_error_that_names_what_was_skipped(tmp_path):
    with pytest.raises(UserError, match="holds no result"):
        results.read([tmp_path])
    (tmp_path / "x.json").write_text("[1")
    with pytest.raises(UserError, match=r"no result to compare.*\n.*x\.json"):
        results.read([tmp_path])


def test_a_path_that_does_not_exist_is_an_error(tmp_path, write):
    with pytest.raises(UserError, match="Give run folders or result files"):
        results.read([write("good"), tmp_path / "typo"])


def test_nan_ends_the_curves_and_fails_the_run(write):
    path = write("train_x.json", test_acc=[60.0, float("nan")])
    (result,) = results.read([path]).results
    assert not result.finished
    assert result.failure == "epoch 2 holds a figure that is no number"
    assert result.curves.test_accuracy.tolist() == [60.0]
    assert result.curves.train_loss.tolist() == [1.0]


def test_a_run_keeps_its_bits(make_record):
    record = make_record(steps=np.arange(8, dtype=np.float32), accuracy=(50.0, 60.0))
    result = results.from_record(record)
    assert result.step_losses is not None
    assert result.step_losses.tobytes() == np.arange(8, dtype=np.float32).tobytes()
    assert result.digests == tuple(e.weights_sha256 for e in record.epochs)
    assert result.fingerprints == record.fingerprints


def test_predictions_are_read_when_asked_for(make_record, tmp_path):
    record = replace(make_record(), path=tmp_path)
    file = io.BytesIO()
    np.save(file, np.arange(10, dtype=np.uint8))
    record = runs.write_file(record, runs.PREDICTIONS, file.getvalue())
    predictions = results.from_record(record).load_predictions()
    assert predictions is not None
    assert predictions.tolist() == list(range(10))


def test_environments_are_flat_and_say_what_changed_on_the_way(make_record):
    record = make_record(environment={"versions": {"numpy": "2.0", "torch": "2.9"}})
    second = record.environments[0] | {"first_epoch": 3, "threads": 1, "framework": "jax"}
    moved = results.from_record(replace(record, environments=(*record.environments, second)))
    assert moved.framework == "torch->jax"
    assert moved.environment == {
        "threads": "2->1",
        "versions.numpy": "2.0",
        "versions.torch": "2.9",
    }
    assert moved.facts["threads"] == "2->1"  # not the setting, which is None


def test_exact_operations_read_as_they_are_typed(make_result):
    assert make_result().facts["exact_only"] == "none"
    assert make_result(exact_only=("dot", "softmax")).facts["exact_only"] == "dot,softmax"
