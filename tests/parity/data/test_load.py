import dataclasses
from pathlib import Path

import pytest

from parity.config import TrainConfig
from parity.data import cifar10, digits
from parity.data.load import load
from parity.errors import UserError


@pytest.fixture
def asked(monkeypatch) -> list[tuple[str, Path]]:
    """The (source, folder) pairs that CIFAR-10 is asked from; digits stand in for its images."""
    pairs = []

    def stand_in(source, folder, *, show_progress):
        pairs.append((source, folder))
        return dataclasses.replace(digits.load(), name="cifar10", source=source)

    monkeypatch.setattr(cifar10, "load", stand_in)
    return pairs


@pytest.mark.parametrize("default", ["tfds", "torchvision"])
def test_default_source_reads_a_folder_without_binary_files(asked, tmp_path, default):
    load(TrainConfig(data_dir=tmp_path), default)
    assert asked == [(default, tmp_path)]


@pytest.mark.parametrize("given", ["cifar-10-batches-bin", "."])
def test_a_folder_with_binary_files_is_read_as_binary(asked, tmp_path, splits, write_binary, given):
    write_binary(tmp_path, *splits)
    load(TrainConfig(data_dir=tmp_path / given), "tfds")
    assert asked == [("binary", tmp_path / given)]


def test_a_given_source_comes_before_what_the_folder_holds(asked, tmp_path, splits, write_binary):
    write_binary(tmp_path, *splits)
    load(TrainConfig(data_dir=tmp_path, data_source="torchvision"), "tfds")
    assert asked == [("torchvision", tmp_path)]


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ("tfds", Path.home() / "tensorflow_datasets"),
        ("torchvision", Path("data")),
        ("binary", Path("data")),
    ],
)
def test_each_source_has_its_own_folder(asked, monkeypatch, source, folder):
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    load(TrainConfig(data_source=source), "tfds")
    assert asked == [(source, folder)]


def test_tfds_folder_is_the_one_of_its_environment_variable(asked, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", "/elsewhere")
    load(TrainConfig(), "tfds")
    assert asked == [("tfds", Path("/elsewhere"))]


def test_the_runs_subset_is_what_is_returned():
    dataset = load(TrainConfig(dataset="digits", train_size=100, test_size=10), "tfds")
    assert len(dataset.train_labels) == len(dataset.train_samples) == 100
    assert len(dataset.test_labels) == 10
    assert dataset.num_canonical == 1437


def test_a_subset_larger_than_the_set_is_refused():
    with pytest.raises(UserError, match=r"--train-size is 2,000, .* 1,437 .*at most 1,437"):
        load(TrainConfig(dataset="digits", train_size=2000), "tfds")


@pytest.mark.parametrize("option", [{"data_source": "tfds"}, {"data_dir": Path("data")}])
def test_digits_have_no_source_to_choose(option):
    with pytest.raises(UserError, match=r"Leave out --data-(source|dir), or --dataset digits"):
        load(TrainConfig(dataset="digits", **option), "tfds")


def test_a_file_is_not_a_data_dir(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"is a file\. Give the folder"):
        load(TrainConfig(data_dir=tmp_path / "file"), "tfds")


def test_a_missing_data_dir_leads_to_the_ways_to_get_the_files(tmp_path):
    config = TrainConfig(data_dir=tmp_path / "nowhere", data_source="binary")
    with pytest.raises(
        UserError, match=r"(?s)holds no CIFAR-10.*in a folder that --data-dir names"
    ):
        load(config, "tfds")
