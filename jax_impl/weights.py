"""SimpleCNN's weights between Flax and the canonical form, and Orbax checkpoints on disk.

    python -m jax_impl.weights import CHECKPOINT FILE.safetensors
    python -m jax_impl.weights export FILE.safetensors CHECKPOINT

CHECKPOINT is a folder that Orbax wrote from `nnx.state(model)` of `jax_impl.model.SimpleCNN`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parity.architecture import BUFFERS, PARAMETERS
from parity.command import user_errors, writing
from parity.errors import UserError
from parity.weights import Weights, check, load_simple_cnn, save

if TYPE_CHECKING:  # --help need not wait for JAX
    from flax import nnx


class Place(NamedTuple):
    """Where Flax keeps a canonical tensor."""

    path: tuple[str, ...]
    """Module and variable."""
    axes: tuple[int, ...] | None
    """Canonical axes in Flax's order; None where they agree."""


def _place(name: str) -> Place:
    module, tensor = name.split(".")
    if module.startswith("bn"):
        variable = {"weight": "scale", "running_mean": "mean", "running_var": "var"}
        return Place((module, variable.get(tensor, tensor)), None)
    if tensor == "bias":
        return Place((module, "bias"), None)
    # OIHW becomes HWIO, and (out, in) becomes (in, out).
    return Place((module, "kernel"), (2, 3, 1, 0) if module.startswith("conv") else (1, 0))


LAYOUT = {name: _place(name) for name in PARAMETERS | BUFFERS}
"""Every canonical tensor's place in Flax."""


def to_canonical(state: "nnx.State") -> Weights:
    """Return copies of a state's arrays (parameters, statistics, slots) by canonical name."""
    from flax import nnx

    flat = nnx.to_flat_state(state)
    return _to_canonical({tuple(map(str, p)): np.asarray(variable[...]) for p, variable in flat})


def _to_canonical(arrays: Mapping[tuple[str, ...], np.ndarray]) -> Weights:
    tensors: Weights = {}
    for name, (path, axes) in LAYOUT.items():
        if path in arrays:
            array = arrays[path]
            if axes is not None and array.ndim == len(axes):  # else: `check` names the shape
                array = array.transpose(np.argsort(axes))
            dtype = np.int64 if name.endswith("num_batches_tracked") else array.dtype
            tensors[name] = np.array(array, dtype, order="C")
    return tensors


def from_canonical(template: "nnx.State", tensors: Mapping[str, np.ndarray]) -> "nnx.State":
    """Return a state of the template's structure and types that holds canonical tensors."""
    import jax.numpy as jnp
    from flax import nnx

    places: dict[tuple[Any, ...], tuple[str, tuple[int, ...] | None]] = {
        path: (name, axes) for name, (path, axes) in LAYOUT.items()
    }
    flat = []
    for path, variable in nnx.to_flat_state(template):
        name, axes = places[path]
        array = tensors[name] if axes is None else tensors[name].transpose(axes)
        flat.append((path, variable.replace(jnp.array(array, variable.dtype))))
    return nnx.from_flat_state(flat)


def read_checkpoint(folder: Path) -> Weights:
    """Return SimpleCNN's canonical weights from an Orbax checkpoint of an NNX state.

    nnx.BatchNorm does not count its batches; where the count is missing it becomes 0.

    Raises:
        UserError: If there is no checkpoint, or it does not hold SimpleCNN.
    """
    import jax
    import orbax.checkpoint as ocp

    try:
        # Without x64 JAX would round float64 to float32.
        with jax.enable_x64(True), ocp.StandardCheckpointer() as checkpointer:
            content = checkpointer.restore(folder.absolute())
    except Exception as error:  # Orbax raises whatever its storage layer does.
        raise UserError(
            f"{folder} is no whole Orbax checkpoint ({type(error).__name__}). "
            "Save `nnx.state(model)` with orbax.checkpoint.StandardCheckpointer."
        ) from error
    arrays = {}
    for keys, array in jax.tree_util.tree_flatten_with_path(content)[0]:
        # An NNX state is stored with a level "value" below each variable, a pure dict without.
        names = [str(getattr(key, "key", key)) for key in keys]
        path = tuple(name for name in names if name != "value")
        arrays[path] = np.asarray(array)
    weights = _to_canonical(arrays)
    for name in BUFFERS:
        if name.endswith("num_batches_tracked"):
            weights.setdefault(name, np.zeros((), np.int64))
    check(weights, str(folder))
    return weights


def write_checkpoint(folder: Path, weights: Weights) -> None:
    """Write an Orbax checkpoint of `nnx.state(SimpleCNN)` that holds canonical weights.

    Raises:
        UserError: If the folder is there already or cannot be made.
    """
    import jax
    import orbax.checkpoint as ocp
    from flax import nnx

    from jax_impl.model import SimpleCNN

    if folder.exists():
        raise UserError(f"{folder} is there already. Remove it, or choose another folder.")
    with writing(folder):  # Orbax would wait a minute and end in a traceback
        folder.mkdir(parents=True)
        folder.rmdir()
    # Without x64 JAX would round float64 to float32.
    with jax.enable_x64(True), ocp.StandardCheckpointer() as checkpointer:
        template = nnx.state(SimpleCNN(weights["fc1.weight"].dtype))
        checkpointer.save(folder.absolute(), from_canonical(template, weights))


def main() -> None:
    """Run the command line: import or export an Orbax checkpoint."""
    import tyro
    from tyro.extras import SubcommandApp

    app = SubcommandApp()

    @app.command(name="import")
    def import_checkpoint(
        checkpoint: tyro.conf.Positional[Path], file: tyro.conf.Positional[Path]
    ) -> None:
        """Turn an Orbax checkpoint of an NNX state into a canonical safetensors file."""
        weights = read_checkpoint(checkpoint)
        with writing(file):
            save(file, weights)
        print(f"{file}: SimpleCNN's canonical weights from {checkpoint}")

    @app.command(name="export")
    def export_checkpoint(
        file: tyro.conf.Positional[Path], checkpoint: tyro.conf.Positional[Path]
    ) -> None:
        """Turn a canonical safetensors file into an Orbax checkpoint of an NNX state."""
        write_checkpoint(checkpoint, load_simple_cnn(file))
        print(f"{checkpoint}: Orbax checkpoint of nnx.state(SimpleCNN) from {file}")

    with user_errors():
        app.cli(prog="python -m jax_impl.weights")


if __name__ == "__main__":
    main()
