import dataclasses
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.config import FLOAT32_NORMAL, DatasetName, DataSource, OptimizerName, TrainConfig
from parity.errors import UserError
from parity.exact.operations import OPERATIONS

paths = st.none() | st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}", fullmatch=True).map(Path)
counts = st.integers(1, 10**9)
fields = dict(
    device=st.sampled_from(["cpu", "cpu:avx2", "gpu:1", "tpu"]),
    threads=st.none() | counts,
    dataset=st.sampled_from(get_args(DatasetName)),
    data_dir=paths,
    data_source=st.none() | st.sampled_from(get_args(DataSource)),
    train_size=st.none() | counts,
    test_size=st.none() | counts,
    optimizer=st.sampled_from(get_args(OptimizerName)),
    lr=st.floats(*FLOAT32_NORMAL),
    batch_size=counts,
    epochs=counts,
    seed=st.integers(0, 2**63 - 1),
    init_weights=paths,
    out=paths,
)
exact_only = st.lists(st.sampled_from(list(OPERATIONS))).map(tuple)
configs = st.builds(
    TrainConfig, **fields, arithmetic=st.sampled_from(["float32", "float64", "exact"])
) | st.builds(TrainConfig, **fields, exact_only=exact_only)


@given(configs)
def test_a_configuration_survives_json(config):
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_what_concerns_one_process_only_is_not_written():
    config = TrainConfig(resume=Path("runs/one"), quiet=True)
    assert not {"resume", "quiet"} & set(config.to_json())
    assert TrainConfig.from_json(config.to_json()) == TrainConfig()


def test_the_defaults_are_the_articles():
    # Golden: the article "Cross-GPU Reproducibility", its training setup.
    article = ("cifar10", "adam", 0.001, 128, 10, 42)
    config = TrainConfig()
    assert article == (
        config.dataset,
        config.optimizer,
        config.lr,
        config.batch_size,
        config.epochs,
        config.seed,
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("threads", 0, "--threads is 0, but must be at least 1"),
        ("train_size", 0, "--train-size is 0, but must be at least 1"),
        ("test_size", -5, "--test-size is -5, but must be at least 1"),
        ("batch_size", 0, "--batch-size is 0, but must be at least 1"),
        ("epochs", 0, "--epochs is 0, but must be at least 1"),
        ("seed", -1, "--seed is -1, but must be at least 0"),
        ("seed", 2**63, r"--seed is \d+, but must be below 2\*\*63"),
        ("lr", 0.0, "--lr is 0.0, but must be a positive finite number"),
        ("lr", -1e-3, "--lr is -0.001, but must be"),
        ("lr", float("nan"), "--lr is nan, but must be"),
        ("lr", float("inf"), "--lr is inf, but must be"),
        ("lr", 1e-50, "--lr is 1e-50, which float32 cannot hold: it ranges from 1.18e-38 to 3.4e"),
        ("lr", 1e-40, "--lr is 1e-40, which float32 cannot hold"),
        ("lr", 1e39, r"--lr is 1e\+39, which float32 cannot hold"),
        ("dataset", "mnist", "mnist.*cifar10.*digits"),
        ("data_source", "lmdb", "lmdb.*tfds.*torchvision.*binary"),
        ("optimizer", "lion", "lion.*adam.*rmsprop.*sgd"),
        ("arithmetic", "bfloat16", "bfloat16.*float32.*float64"),
        (
            "exact_only",
            ("dot", "sum"),
            "--exact-only 'sum' is no operation. Choose from dot, batchn",
        ),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_name_and_limit(field, value, message):
    with pytest.raises(UserError, match=message):
        TrainConfig(**{field: value})


@pytest.mark.parametrize(
    "smallest",
    [
        *({"seed": 0}, {"seed": 2**63 - 1}, {"batch_size": 1}, {"epochs": 1}),
        *({"lr": float(getattr(np.finfo(np.float32), limit))} for limit in ("tiny", "max")),
        {"lr": 5e-324, "arithmetic": "float64"},
    ],
)
def test_the_limits_themselves_are_allowed(smallest):
    TrainConfig(**smallest)


@pytest.mark.parametrize("arithmetic", ["float64", "exact"])
def test_single_operations_are_exact_in_float32_only(arithmetic):
    with pytest.raises(UserError, match=f"--arithmetic is {arithmetic}. Leave out one"):
        TrainConfig(exact_only=("dot",), arithmetic=arithmetic)


def test_the_order_of_exact_operations_makes_no_other_run():
    config = TrainConfig(exact_only=("softmax", "dot", "softmax"))
    assert config == TrainConfig(exact_only=("dot", "softmax"))
    older = TrainConfig().to_json() | {"exact_only": ["softmax", "dot"]}
    assert TrainConfig.from_json(older) == config


def test_which_operations_are_exact_and_whether_they_need_float64():
    def facts(**settings):
        config = TrainConfig(**settings)
        return config.exact_operations, config.needs_float64, config.dtype

    assert facts() == (frozenset(), False, "float32")
    assert facts(arithmetic="float64") == (frozenset(), True, "float64")
    assert facts(arithmetic="exact") == (frozenset(OPERATIONS), True, "float32")
    assert facts(exact_only=("dot",)) == (frozenset({"dot"}), True, "float32")


def test_a_configuration_from_before_single_operations_could_be_exact_has_none():
    older = TrainConfig().to_json()
    del older["exact_only"]
    assert TrainConfig.from_json(older) == TrainConfig()


def test_a_field_of_a_newer_version_is_refused_by_name():
    with pytest.raises(UserError, match=r"warmup.*newer one\.$"):
        TrainConfig.from_json(TrainConfig().to_json() | {"warmup": 3})


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().seed = 1  # pyright: ignore[reportAttributeAccessIssue]
