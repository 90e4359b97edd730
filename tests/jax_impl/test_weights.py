import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from jax_impl import weights as module
from jax_impl.model import SimpleCNN
from jax_impl.weights import from_canonical, read_checkpoint, to_canonical, write_checkpoint
from parity.errors import UserError
from parity.weights import digest, load, save

DTYPES = ("float32", "float64")


@pytest.fixture
def command(monkeypatch, capsys):
    """Return a function that runs the command in this process: exit status, stdout, stderr."""

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["weights", *map(str, arguments)])
        status = 0
        try:
            module.main()
        except SystemExit as exit:
            status = int(str(exit.code))
        return (status, *capsys.readouterr())

    return run


def special(weights):
    """Plant values that a conversion may lose: a negative zero, a subnormal, the largest number."""
    largest = np.finfo(weights["fc1.bias"].dtype).max
    weights["fc1.bias"][:4] = [
        -0.0,
        np.finfo(weights["fc1.bias"].dtype).smallest_subnormal,
        largest,
        1,
    ]
    return weights


def state_of(weights) -> nnx.State:
    with jax.enable_x64(True):
        return from_canonical(nnx.state(SimpleCNN(weights["fc1.bias"].dtype)), weights)


@pytest.mark.parametrize("dtype", DTYPES)
def test_canonical_weights_come_back_to_the_bit(random_weights, dtype):
    weights = special(random_weights(1, dtype))
    assert digest(to_canonical(state_of(weights))) == digest(weights)


def test_every_tensor_lies_in_its_place_and_layout(random_weights):
    weights = random_weights(2, "float32")
    state = state_of(weights)
    kernel, matrix = (state[name]["kernel"][...] for name in ("conv2", "fc1"))
    assert kernel[0, 2, 5, 3] == weights["conv2.weight"][3, 5, 0, 2]
    assert matrix[11, 7] == weights["fc1.weight"][7, 11]
    assert np.array_equal(state["bn3"]["var"][...], weights["bn3.running_var"])


def test_canonical_weights_are_copies(random_weights):
    weights = random_weights(3, "float32")
    state = state_of(weights)
    expected = digest(weights)
    for array in (*weights.values(), *to_canonical(state).values()):
        array[...] = 0
    assert digest(to_canonical(state)) == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_commands_export_and_import_to_the_bit(command, tmp_path, random_weights, dtype):
    first, checkpoint, again = (tmp_path / name for name in ("a.safetensors", "b", "c.safetensors"))
    weights = special(random_weights(4, dtype))
    save(first, weights)
    with jax.enable_x64(False):  # as where nobody asked for float64
        assert command("export", first, checkpoint) == (
            0,
            f"{checkpoint}: Orbax checkpoint of nnx.state(SimpleCNN) from {first}\n",
            "",
        )
        assert command("import", checkpoint, again) == (
            0,
            f"{again}: SimpleCNN's canonical weights from {checkpoint}\n",
            "",
        )
    assert digest(load(again)[0]) == digest(weights)


@pytest.mark.parametrize("dtype", DTYPES)
def save_orbax(folder, tree) -> None:
    with jax.enable_x64(True), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, tree)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", [lambda state: state, nnx.to_pure_dict])
def test_what_the_framework_itself_saves_is_read(tmp_path, random_weights, dtype, form):
    weights = random_weights(5, dtype)
    save_orbax(tmp_path / "own", form(state_of(weights)))
    assert digest(read_checkpoint(tmp_path / "own")) == digest(weights)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_the_framework_itself_reads(tmp_path, random_weights, dtype):
    weights = random_weights(6, dtype)
    write_checkpoint(tmp_path / "w", weights)
    with jax.enable_x64(True), ocp.StandardCheckpointer() as checkpointer:
        template = nnx.state(SimpleCNN(dtype))
        state = checkpointer.restore(tmp_path / "w", template)
    assert digest(to_canonical(state)) == digest(weights)


def test_a_missing_count_of_batches_is_zero(tmp_path, random_weights):
    weights = random_weights(7, "float32")
    tree = nnx.to_pure_dict(state_of(weights))
    counts = [f"bn{i}" for i in (1, 2, 3)]
    for name in counts:
        del tree[name]["num_batches_tracked"]
    save_orbax(tmp_path / "w", tree)
    zeros = {f"{name}.num_batches_tracked": np.zeros((), np.int64) for name in counts}
    assert digest(read_checkpoint(tmp_path / "w")) == digest(weights | zeros)


def test_a_truncated_file_is_refused_with_its_name(tmp_path, random_weights):
    folder = tmp_path / "cut"
    write_checkpoint(folder, random_weights(9, "float32"))
    read_checkpoint(folder)  # whole, it is read
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    largest = max(files, key=lambda path: path.stat().st_size)
    needed = [largest, folder / "_METADATA"]
    for path in needed:
        content = path.read_bytes()
        os.truncate(path, len(content) // 2)
        with pytest.raises(UserError, match="cut is no whole Orbax checkpoint"):
            read_checkpoint(folder)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree.pop("conv1"), r"lacks the tensor conv1\.weight"),
        (
            lambda tree: tree["conv1"].update(kernel=jnp.zeros((3, 3, 3, 32), jnp.bfloat16)),
            r"conv1\.weight is bfloat16.*must be float32 or float64",
        ),
        (
            lambda tree: tree["conv1"].update(kernel=jnp.zeros((3, 3, 3, 32), jnp.float16)),
            r"conv1\.weight is float16",
        ),
        (
            lambda tree: tree["conv1"].update(kernel=jnp.zeros((3, 3))),
            r"conv1\.weight has shape \(3, 3\).*\(32, 3, 3, 3\)",
        ),
        (
            lambda tree: tree["fc2"].update(bias=jnp.full(10, jnp.nan)),
            r"fc2\.bias in .* holds NaN or infinity",
        ),
    ],
)
def test_what_is_not_simple_cnn_is_refused(tmp_path, random_weights, change, message):
    tree = nnx.to_pure_dict(state_of(random_weights(10, "float32")))
    change(tree)
    save_orbax(tmp_path / "w", tree)
    with pytest.raises(UserError, match=message):
        read_checkpoint(tmp_path / "w")


def test_a_checkpoint_that_is_not_there_is_named(command, tmp_path):
    status, _, err = command("import", tmp_path / "none", tmp_path / "w.safetensors")
    assert status == 2
    assert err.startswith(f"error: {tmp_path}/none is no whole Orbax checkpoint (FileNotFoundError")


def test_a_folder_that_is_there_is_not_overwritten(command, tmp_path, random_weights):
    save(tmp_path / "w.safetensors", random_weights(11, "float32"))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    status, _, err = command("export", tmp_path / "w.safetensors", tmp_path / "there")
    assert (status, err) == (
        2,
        f"error: {tmp_path}/there is there already. Remove it, or choose another folder.\n",
    )
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["file"]


@pytest.mark.parametrize("direction", ["import", "export"])
def test_a_place_that_cannot_be_written_is_named(command, tmp_path, random_weights, direction):
    weights = random_weights(11, "float32")
    save(tmp_path / "w.safetensors", weights)
    write_checkpoint(tmp_path / "w", weights)
    (tmp_path / "file").touch()
    source = {"import": "w", "export": "w.safetensors"}[direction]
    status, _, err = command(direction, tmp_path / source, tmp_path / "file" / "x")
    assert status == 2
    assert err.startswith(f"error: {tmp_path}/file/x cannot be written (Not a directory)")
