import json
from pathlib import Path

import numpy as np
import pytest

from parity.article import files
from parity.errors import UserError

CURVES = {
    "train_loss": [1.4, 1.1],
    "train_acc": [46.3, 58.9],
    "test_loss": [1.1, 0.9],
    "test_acc": [60.27, 65.03],
}


def parse(name: str = "train_x.json", **fields) -> files.ArticleFile:
    return files.parse(CURVES | fields, Path(name))


def test_settings_are_looked_up_in_config_then_at_top_level_then_default():
    file = parse(config={"tf32_enabled": True}, tf32_enabled=False, amp_enabled=True, seed=7)
    assert (file.tf32, file.amp, file.workers, file.seed) == (True, True, 0, 7)
    assert file.label == "seed_7_tf32_True_amp_True_w0"


def test_the_three_kinds_are_told_by_their_prefix():
    names = ["train_A100_x.json", "deterministic_x.json", "optimizer_t4_x.json", "mine.json"]
    assert [parse(name).file_kind for name in names] == [*files.FILE_KINDS, "other"]


def test_an_optimizer_file_has_its_settings_at_top_level():
    file = parse("optimizer_x.json", optimizer="RMSprop", lr=0.01, bf16_enabled=True)
    assert (file.optimizer, file.lr, file.arithmetic) == ("rmsprop", 0.01, "bf16")


def test_the_arithmetic_names_everything_that_is_on():
    assert parse().arithmetic == "float32"
    assert parse(tf32_enabled=True, amp_enabled=True).arithmetic == "tf32+amp"


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA GeForce RTX 3060", "RTX 3060"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("Tesla T4", "T4"),
        ("TPU TPU", "TPU"),
        ("NVIDIA L40S", "NVIDIA L40S"),
    ],
)
def test_devices_have_the_articles_names(name, device):
    assert parse(config={"gpu_name": name}).device == device


def test_null_and_nan_are_read_as_nan():
    assert np.isnan(parse(test_acc=[60.0, None]).test_accuracy).tolist() == [False, True]
    assert np.isnan(parse(test_acc=[float("nan"), 60.0]).test_accuracy).tolist() == [True, False]


def test_a_json_file_without_the_curves_is_no_result():
    for content in ([], {"train_loss": []}, 3):
        with pytest.raises(UserError, match="Give result files of the article"):
            files.parse(content, Path("x.json"))


@pytest.mark.parametrize(
    "fields",
    [
        {"test_acc": [60.0]},
        {name: [] for name in CURVES},
        {"test_acc": "60"},
        {"test_acc": ["60", "65"]},
        {"test_acc": [True, False]},
        {"num_workers": True},
        {"config": {"tf32_enabled": "yes"}},
        {"config": [1]},
        {"seed": "42"},
    ],
)
def test_a_malformed_file_is_refused_by_name(fields):
    with pytest.raises(UserError, match=r"train_x\.json .* Restore the file, or leave it out\."):
        parse(**fields)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    path = tmp_path / "train_x.json"
    path.write_text(json.dumps(CURVES)[:-5])
    with pytest.raises(UserError, match="Give another file"):
        files.read(path)


def test_all_published_files_are_read(article_results):
    read = [files.read(path) for path in sorted(article_results.glob("*.json"))]
    kinds = [file.file_kind for file in read]
    # Source: the counts of the article's repository, 65 files.
    assert [kinds.count(kind) for kind in files.FILE_KINDS] == [16, 31, 18]
    assert {file.device for file in read} == set(files.DEVICES)
    assert {len(file.test_accuracy) for file in read} == {10}
