import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from parity.errors import UserError
from parity.weights import digest, load, save
from torch_impl import weights as module
from torch_impl.model import SimpleCNN
from torch_impl.weights import from_canonical, read_checkpoint, to_canonical, write_checkpoint

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


@pytest.mark.parametrize("dtype", DTYPES)
def test_canonical_weights_come_back_to_the_bit(random_weights, dtype):
    weights = special(random_weights(1, dtype))
    model = SimpleCNN(getattr(torch, dtype))
    from_canonical(model, weights)
    assert digest(to_canonical(model.state_dict())) == digest(weights)


def test_every_tensor_lies_in_its_place_and_layout(random_weights):
    weights = random_weights(2, "float32")
    model = SimpleCNN(torch.float32)
    from_canonical(model, weights)
    kernel, matrix = (model.get_parameter(n).detach() for n in ("conv2.weight", "fc1.weight"))
    assert kernel[3, 5, 0, 2] == weights["conv2.weight"][3, 5, 0, 2]
    assert matrix[7, 11] == weights["fc1.weight"][7, 11]
    assert np.array_equal(model.get_buffer("bn3.running_var"), weights["bn3.running_var"])


def test_canonical_weights_are_copies(random_weights):
    weights = random_weights(3, "float32")
    model = SimpleCNN(torch.float32)
    from_canonical(model, weights)
    expected = digest(weights)
    for array in (*weights.values(), *to_canonical(model.state_dict()).values()):
        array[...] = 0
    assert digest(to_canonical(model.state_dict())) == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_commands_export_and_import_to_the_bit(command, tmp_path, random_weights, dtype):
    first, checkpoint, again = (
        tmp_path / name for name in ("a.safetensors", "b.pt", "c.safetensors")
    )
    weights = special(random_weights(4, dtype))
    save(first, weights)
    assert command("export", first, checkpoint) == (
        0,
        f"{checkpoint}: state_dict of SimpleCNN from {first}\n",
        "",
    )
    assert command("import", checkpoint, again) == (
        0,
        f"{again}: SimpleCNN's canonical weights from {checkpoint}\n",
        "",
    )
    assert digest(load(again)[0]) == digest(weights)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_framework_itself_saves_is_read(tmp_path, random_weights, dtype):
    weights = random_weights(5, dtype)
    model = SimpleCNN(getattr(torch, dtype))
    from_canonical(model, weights)
    torch.save(model.state_dict(), tmp_path / "own.pt")
    assert digest(read_checkpoint(tmp_path / "own.pt")) == digest(weights)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_the_framework_itself_reads(tmp_path, random_weights, dtype):
    weights = random_weights(6, dtype)
    write_checkpoint(tmp_path / "w.pt", weights)
    model = SimpleCNN(getattr(torch, dtype))
    model.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True))
    assert digest(to_canonical(model.state_dict())) == digest(weights)


def test_a_missing_count_of_batches_is_zero(tmp_path, random_weights):
    weights = random_weights(7, "float32")
    counts = {name for name in weights if name.endswith("num_batches_tracked")}
    tensors = {n: torch.tensor(a) for n, a in weights.items() if n not in counts}
    torch.save(tensors, tmp_path / "w.pt")
    zeros = {name: np.zeros((), np.int64) for name in counts}
    assert digest(read_checkpoint(tmp_path / "w.pt")) == digest(weights | zeros)


class Shell:
    """What a malicious file unpickles: a call of os.system."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_code_in_a_file_is_refused_and_not_run(command, tmp_path, random_weights):
    mark, out = tmp_path / "executed", tmp_path / "w.safetensors"
    tensors = {n: torch.tensor(a) for n, a in random_weights(8, "float32").items()}
    for number, content in enumerate((Shell(mark), tensors | {"conv1.bias": Shell(mark)})):
        torch.save(content, tmp_path / f"{number}.pt")
        status, _, err = command("import", tmp_path / f"{number}.pt", out)
        assert status == 2
        assert "holds more than tensors" in err
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Shell(mark)))
    assert command("import", tmp_path / "plain.pt", out)[0] == 2
    assert not mark.exists()
    assert not out.exists()
    pickle.loads(pickle.dumps(Shell(mark)))  # the trap does spring
    assert mark.exists()


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory, random_weights):
    """State_dict files of today's and of yesterday's format."""
    folder = tmp_path_factory.mktemp("whole")
    tensors = {n: torch.tensor(a) for n, a in random_weights(9, "float32").items()}
    torch.save(tensors, folder / "zip.pt")
    torch.save(tensors, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    return folder


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # the legacy reader's own
@pytest.mark.parametrize("file", ["zip.pt", "legacy.pt"])
def test_a_truncated_file_is_refused_with_its_name(whole_files, tmp_path, file):
    content = (whole_files / file).read_bytes()
    path = tmp_path / "cut.pt"
    path.write_bytes(content)
    read_checkpoint(path)  # whole, it is read
    for cut in (0, 1, 2, 100, 500, 1000, 5000, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(UserError, match=r"cut\.pt is no whole state_dict file"):
            read_checkpoint(path)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # the legacy reader's own
@pytest.mark.parametrize("file", ["zip.pt", "legacy.pt"])
def test_a_damaged_file_ends_in_no_traceback(whole_files, tmp_path, file):
    content = (whole_files / file).read_bytes()
    random = np.random.default_rng(10)
    refused = 0
    for place in random.integers(0, 6000, 60):  # where the names and shapes are
        path = tmp_path / "damaged.pt"
        flipped = bytes([content[place] ^ 1 << random.integers(8)])
        path.write_bytes(content[:place] + flipped + content[place + 1 :])
        try:
            read_checkpoint(path)  # a flipped weight passes: the format has no digest
        except UserError:
            refused += 1
    assert refused


# PyTorch warns of sparse tensors that it takes time to check them.
@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(3)], "something else than named tensors"),
        ({"conv1.weight": 3.0}, "something else than named tensors"),
        ({"module.conv1.weight": torch.zeros(32, 3, 3, 3)}, r"lacks the tensor conv1\.weight"),
        ({"conv1.weight": torch.zeros(32, 3, 3, 3).bfloat16()}, "neither float32 nor float64"),
        ({"conv1.weight": torch.zeros(32, 3, 3, 3).to_sparse()}, "neither float32 nor float64"),
        ({"conv1.weight": torch.zeros(32, 3, 3, 3).half()}, r"conv1\.weight is float16"),
        ({"conv1.weight": torch.zeros(3, 3)}, r"conv1\.weight has shape \(3, 3\).*\(32, 3, 3, 3\)"),
    ],
)
def test_what_is_not_simple_cnn_is_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(UserError, match=message):
        read_checkpoint(tmp_path / "w.pt")


def test_a_checkpoint_that_is_not_there_is_named(command, tmp_path):
    status, _, err = command("import", tmp_path / "none.pt", tmp_path / "w.safetensors")
    assert (status, err) == (
        2,
        f"error: There is no file {tmp_path}/none.pt. Give a state_dict file.\n",
    )


@pytest.mark.parametrize("direction", ["import", "export"])
def test_a_place_that_cannot_be_written_is_named(command, tmp_path, random_weights, direction):
    weights = random_weights(11, "float32")
    save(tmp_path / "w.safetensors", weights)
    write_checkpoint(tmp_path / "w.pt", weights)
    source = {"import": "w.pt", "export": "w.safetensors"}[direction]
    status, _, err = command(direction, tmp_path / source, tmp_path / "no" / "file")
    assert status == 2
    assert err.startswith(f"error: {tmp_path}/no/file cannot be written (No such file or directory")
