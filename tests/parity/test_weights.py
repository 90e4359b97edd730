import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from parity import weights
from parity.architecture import BUFFERS, PARAMETERS, initial_weights
from parity.errors import UserError

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def test_what_is_saved_is_loaded_to_the_bit(tmp_path):
    tensors = {
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "scalar": np.array(7, np.int64),
        "special": np.array([-0.0, np.inf, np.nan, 1e-45], np.float32),
    }
    weights.save(tmp_path / "w.safetensors", tensors, {"epoch": "3"})
    loaded, metadata = weights.load(tmp_path / "w.safetensors")
    assert metadata == {"epoch": "3"}
    for name, array in tensors.items():
        assert (loaded[name].shape, loaded[name].dtype) == (array.shape, array.dtype)
        assert loaded[name].tobytes() == array.tobytes()


def test_initial_weights_have_every_tensor_in_shape():
    made = initial_weights(42)
    assert {n: a.shape for n, a in made.items()} == {
        n: t.shape for n, t in (PARAMETERS | BUFFERS).items()
    }
    assert sum(made[name].size for name in PARAMETERS) == 620_810
    # Golden: this project's own definition, numpy 2.4.6, 2026-11-30.
    assert weights.digest(made) == (
        "16fafdc71bf8b3c6c87ef680ccf159681de67ce72b070dbbb82a5793aca5434d"
    )


def test_digest_ignores_order_and_sees_name_type_shape_and_sign_of_zero():
    zero = np.zeros(2, np.float32)
    base = weights.digest({"a": zero, "b": zero})
    assert base == weights.digest({"b": zero, "a": zero})
    others = [
        {"a": zero, "c": zero},
        {"a": zero, "b": zero.astype(np.float64)},
        {"a": zero, "b": zero[:, None]},
        {"a": zero, "b": -zero},
    ]
    assert len({base, *map(weights.digest, others)}) == 5


@pytest.mark.parametrize("cut", [0, 5, 100, 2_000_000])
def test_a_truncated_file_is_named(tmp_path, cut):
    path = tmp_path / "w.safetensors"
    weights.save(path, initial_weights(1))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UserError, match=r"w\.safetensors is no whole safetensors file"):
        weights.load(path)


def test_a_weights_file_that_does_not_fit_is_told_the_first_tensor_and_both_shapes():
    wrong = initial_weights(1) | {"conv2.weight": np.zeros((64, 31, 3, 3), np.float32)}
    with pytest.raises(UserError, match=r"conv2\.weight.*\(64, 31, 3, 3\).*\(64, 32, 3, 3\)"):
        weights.check(wrong, "a file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc2.bias": np.full(10, np.nan, np.float32)}, r"fc2\.bias.*NaN"),
        ({"fc2.bias": np.zeros(10, np.float16)}, r"fc2\.bias is float16"),
        ({"fc3.bias": np.zeros(3, np.float32)}, r"fc3\.bias of shape \(3,\)"),
        (
            {"bn2.running_var": np.full(64, -0.5, np.float32)},
            r"bn2\.running_var in a file holds -0\.5, and no variance is negative",
        ),
        (
            {"bn1.num_batches_tracked": np.array(2**31 - 1)},
            r"bn1\.num_batches_tracked in a file is 2147483647, but must be from 0 to 1,073,",
        ),
        ({"bn1.num_batches_tracked": np.array(-1)}, r"num_batches_tracked in a file is -1, but"),
    ],
)
def test_weights_that_are_none_of_ours_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        weights.check(initial_weights(1) | change, "a file")


def test_weights_at_the_limits_are_accepted():
    limits = {
        "bn1.running_var": np.zeros(32, np.float32),
        "bn1.num_batches_tracked": np.array(weights.MAX_BATCHES_TRACKED),
    }
    weights.check(initial_weights(1) | limits, "a file")


def test_a_missing_tensor_is_named():
    lacking = initial_weights(1)
    del lacking["bn3.running_var"]
    with pytest.raises(UserError, match=r"lacks the tensor bn3\.running_var"):
        weights.check(lacking, "a file")


@given(hnp.arrays(np.float32, 5, elements=floats), hnp.arrays(np.float32, 5, elements=floats))
def test_ulp_distance_is_a_metric_that_counts_steps(a, b):
    distance = weights.ulp_distance(a, b)
    assert (distance == weights.ulp_distance(b, a)).all()
    assert ((distance == 0) == (a == b)).all()
    nearer_one = np.nextafter(a, np.float32(1), dtype=np.float32)
    assert (weights.ulp_distance(a, nearer_one) == (a != 1)).all()


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, 2**32), (np.float64, 2**64)])
def test_ulp_distance_spans_the_whole_range(dtype, count):
    largest = np.array([np.finfo(dtype).max], dtype)
    exponent_values = 2 ** (31 if dtype is np.float32 else 63)
    infinities_and_nans = 2 ** (23 if dtype is np.float32 else 52)
    # From -max to max: all finite patterns of both signs, the two zeros being one value.
    finite = count - 2 * infinities_and_nans
    assert int(weights.ulp_distance(-largest, largest)[0]) == finite - 2
    assert finite == 2 * (exponent_values - infinities_and_nans)


def test_diff_sees_one_flipped_bit():
    a = initial_weights(1)
    flipped = a["fc1.weight"].copy()
    flipped.view(np.uint32)[3, 5] ^= 1
    entries = {entry.name: entry for entry in weights.diff(a, a | {"fc1.weight": flipped})}
    assert [name for name, entry in entries.items() if not entry.bits_equal] == ["fc1.weight"]
    assert entries["fc1.weight"].largest_ulp == 1


def test_diff_tells_apart_shapes_types_and_missing_tensors():
    a = {"x": np.zeros(2, np.float32), "y": np.ones(1, np.float32), "z": np.ones(1, np.float32)}
    b = {"x": np.zeros(3, np.float32), "y": np.ones(1, np.float64)}
    x, y, z = weights.diff(a, b)
    assert (x.shapes, x.largest_difference) == (((2,), (3,)), None)
    assert (y.bits_equal, y.largest_difference, y.largest_ulp) == (False, 0.0, None)
    assert z.shapes == ((1,), None)


def run_command(*arguments):
    command = [sys.executable, "-m", "parity.weights", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_command_lists_and_compares(tmp_path):
    one, two = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    weights.save(one, initial_weights(1))
    weights.save(two, initial_weights(2))
    shown = run_command("show", one)
    assert shown.returncode == 0
    assert weights.digest(initial_weights(1)) in shown.stdout
    equal, unequal = run_command("diff", one, one), run_command("diff", one, two)
    assert "Bitwise identical: all 25 tensors" in equal.stdout
    assert "10 of 25 tensors differ, first conv1.bias" in unequal.stdout
    assert (equal.returncode, unequal.returncode) == (0, 1)
    assert run_command("diff", one, tmp_path / "none").returncode == 2


def test_the_command_names_a_missing_file(tmp_path):
    failed = run_command("show", tmp_path / "none.safetensors")
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: There is no file")
    assert "Traceback" not in failed.stderr
