"""Canonical weights: safetensors with PyTorch's names and shapes, and what differs between two.

python -m parity.weights show FILE...
python -m parity.weights diff FILE FILE

Like diff and cmp, `diff` ends with status 0 where all bits are equal, 1 where some differ and 2
where a file cannot be read.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from parity.architecture import BUFFERS, PARAMETERS
from parity.console import console, table
from parity.errors import UserError
from parity.files import write_atomically

Weights = dict[str, np.ndarray]

MAX_BATCHES_TRACKED = 2**30
"""BatchNorm's count of batches that a run may begin with. JAX counts in int32, PyTorch in int64:
so many batches more still fit into both."""


def digest(tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 over names, types, shapes and bytes, whatever the order of the tensors."""
    sha = hashlib.sha256()
    for name in sorted(tensors):
        array = np.asarray(tensors[name])
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def to_bytes(tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file."""
    # safetensors writes the buffer as it lies, whatever the strides.
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    return safetensors.numpy.save(contiguous, metadata)


def save(
    path: Path, tensors: Mapping[str, np.ndarray], metadata: dict[str, str] | None = None
) -> None:
    """Write `tensors` as a safetensors file, atomically."""
    content = to_bytes(tensors, metadata)
    write_atomically(path, lambda file: file.write(content))


def load(path: Path) -> tuple[Weights, dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file.

    Raises:
        UserError: If the file is missing, truncated or no safetensors file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"There is no file {path}. Give the path of a safetensors file.") from None
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} is no whole safetensors file ({error}). "
            "Make it again, or give another; `python -m torch_impl.weights` and "
            "`python -m jax_impl.weights` convert other formats."
        ) from None


def check(weights: Mapping[str, np.ndarray], source: str) -> None:
    """Check that `weights` are SimpleCNN's: all names, every shape, and values that can be.

    Raises:
        UserError: Names the first tensor that does not fit, and what it should be.
    """
    expected = PARAMETERS | BUFFERS
    for name, tensor in expected.items():
        if name not in weights:
            raise UserError(
                f"{source} lacks the tensor {name}, which SimpleCNN has with shape "
                f"{tensor.shape}. Give a file with SimpleCNN's canonical weights."
            )
        array = weights[name]
        if array.shape != tensor.shape:
            raise UserError(
                f"{name} has shape {array.shape} in {source}, but SimpleCNN needs "
                f"{tensor.shape}. Give a file with SimpleCNN's canonical weights."
            )
        wanted = "int64" if name.endswith("num_batches_tracked") else "float32 or float64"
        if str(array.dtype) not in wanted:
            raise UserError(
                f"{name} is {array.dtype} in {source}, but must be {wanted}. "
                "Convert it before, so that no rounding happens unseen."
            )
        if not np.isfinite(array).all():
            raise UserError(
                f"{name} in {source} holds NaN or infinity. Start from weights that are finite."
            )
        if name.endswith("running_var") and (array < 0).any():
            raise UserError(
                f"{name} in {source} holds {array.min():.6g}, and no variance is negative. "
                "Give the weights of a network that was trained."
            )
        if name.endswith("num_batches_tracked") and not 0 <= array <= MAX_BATCHES_TRACKED:
            raise UserError(
                f"{name} in {source} is {array}, but must be from 0 to {MAX_BATCHES_TRACKED:,}, "
                "because JAX counts in 32 bits. Set it to 0: no result depends on it."
            )
    for name in weights:
        if name not in expected:
            raise UserError(
                f"{source} has a tensor {name} of shape {weights[name].shape}, which SimpleCNN "
                "does not have. Give a file with SimpleCNN's canonical weights."
            )


def load_simple_cnn(path: Path) -> Weights:
    """Return SimpleCNN's weights from a canonical file.

    Raises:
        UserError: If the file cannot be read or does not fit.
    """
    weights, _ = load(path)
    check(weights, str(path))
    return weights


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return how many representable values lie between a and b, elementwise, uint64.

    0 means equal; +0 and -0 are one value; the neighbour of x is at distance 1, across zero too.
    Only for float32 and float64 without NaN, both of one type and shape.
    """
    signed, bits = {"float32": (np.int32, 32), "float64": (np.int64, 64)}[str(a.dtype)]

    def rank(x: np.ndarray) -> np.ndarray:
        # Magnitude counts up from zero; negative values count down from the middle of the range.
        pattern = np.ascontiguousarray(x).view(signed).astype(np.int64)
        magnitude = (pattern & (2 ** (bits - 1) - 1)).astype(np.uint64)
        middle = np.uint64(2**63)
        return np.where(pattern < 0, middle - magnitude, middle + magnitude)

    low, high = np.minimum(rank(a), rank(b)), np.maximum(rank(a), rank(b))
    return high - low


@dataclass(frozen=True)
class TensorDiff:
    """How one tensor differs between two files."""

    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    """Both shapes; None where the tensor is missing."""
    bits_equal: bool
    largest_difference: float | None
    """Largest absolute difference; None where the two cannot be subtracted."""
    largest_ulp: int | None
    """Largest ULP distance; None where types differ, are not floating point, or NaN is involved."""


def diff(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> list[TensorDiff]:
    """Return one entry a tensor, in the order of `a`, then what only `b` has."""
    return [_tensor_diff(name, a.get(name), b.get(name)) for name in dict.fromkeys((*a, *b))]


def _tensor_diff(name: str, x: np.ndarray | None, y: np.ndarray | None) -> TensorDiff:
    if x is None or y is None or x.shape != y.shape:
        shapes = (None if x is None else x.shape, None if y is None else y.shape)
        return TensorDiff(name, shapes, False, None, None)
    equal = x.dtype == y.dtype and x.tobytes() == y.tobytes()
    # Equal infinities differ by nothing, though their subtraction is NaN.
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(x == y, 0.0, np.abs(x.astype(np.float64) - y.astype(np.float64)))
    ulp = None
    if x.dtype == y.dtype and x.dtype in (np.float32, np.float64):
        nan = bool(np.isnan(x).any() or np.isnan(y).any())
        ulp = None if nan else int(ulp_distance(x, y).max(initial=0))
    return TensorDiff(name, (x.shape, y.shape), equal, float(difference.max(initial=0.0)), ulp)


def _show(path: Path) -> None:
    tensors, metadata = load(path)
    rows = table("tensor", "shape", "type", ">smallest", ">largest", ">mean")
    for name, array in tensors.items():
        numbers = ("", "", "")
        if array.size:
            numbers = tuple(f"{f(array):.6g}" for f in (np.min, np.max, np.mean))
        rows.add_row(name, str(array.shape), str(array.dtype), *numbers)
    screen = console()
    size = sum(array.size for array in tensors.values())
    screen.print(f"{path}: {len(tensors)} tensors, {size:,} values")
    screen.print(f"sha256 {digest(tensors)}")
    if metadata:
        screen.print(f"metadata: {json.dumps(metadata)}")
    screen.print(rows)


def _print_diff(left: Path, right: Path) -> bool:
    """Print how two files differ and return whether they do."""
    (a, _), (b, _) = load(left), load(right)
    rows = table("tensor", "shape", "bits", ">largest difference", ">largest ULP distance")
    entries = diff(a, b)
    for entry in entries:
        first, second = entry.shapes
        shape = str(first) if first == second else f"{first or 'missing'} / {second or 'missing'}"
        largest, ulp = entry.largest_difference, entry.largest_ulp
        rows.add_row(
            entry.name,
            shape,
            "equal" if entry.bits_equal else "differ",
            "" if largest is None else f"{largest:.3g}",
            "" if ulp is None else f"{ulp:,}",
        )
    screen = console()
    screen.print(rows)
    unequal = [entry.name for entry in entries if not entry.bits_equal]
    if unequal:
        screen.print(f"{len(unequal)} of {len(entries)} tensors differ, first {unequal[0]}.")
    else:
        screen.print(f"Bitwise identical: all {len(entries)} tensors, sha256 {digest(a)}.")
    return bool(unequal)


def main() -> None:
    """Run the command line: show or diff canonical weight files."""
    import tyro
    from tyro.extras import SubcommandApp

    from parity.command import user_errors

    app = SubcommandApp()

    @app.command
    def show(files: tyro.conf.Positional[tuple[Path, ...]]) -> None:
        """List the tensors of canonical files: shape, type, range, digest."""
        if not files:
            raise UserError("No file given. Name one or more safetensors files.")
        for path in files:
            _show(path)

    @app.command(name="diff")
    def diff_files(files: tyro.conf.Positional[tuple[Path, Path]]) -> None:
        """Say for each tensor whether two files agree bit for bit, and how far apart they are.

        The exit status is 0 if all do, 1 if one differs, 2 if a file cannot be read.
        """
        sys.exit(_print_diff(*files))

    with user_errors():
        app.cli(prog="python -m parity.weights")


if __name__ == "__main__":
    main()
