"""SimpleCNN's weights between PyTorch and the canonical form, and state_dict files on disk.

    python -m torch_impl.weights import FILE.pt FILE.safetensors
    python -m torch_impl.weights export FILE.safetensors FILE.pt

FILE.pt is what `torch.save(model.state_dict(), ...)` wrote; it is read with `weights_only`, which
runs no code from the file.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from parity.architecture import BUFFERS
from parity.command import user_errors, writing
from parity.errors import UserError
from parity.files import write_atomically
from parity.weights import Weights, check, load_simple_cnn, save

if TYPE_CHECKING:  # --help need not wait for PyTorch
    from torch import Tensor, nn


def to_canonical(state: "Mapping[str, Tensor]") -> Weights:
    """Return copies of a state_dict's tensors by canonical name: PyTorch's names are canonical."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}


def from_canonical(model: "nn.Module", tensors: Mapping[str, np.ndarray]) -> None:
    """Set the model's parameters and buffers from canonical tensors."""
    import torch

    names = model.state_dict().keys()
    model.load_state_dict({name: torch.tensor(tensors[name]) for name in names})


def read_checkpoint(file: Path) -> Weights:
    """Return SimpleCNN's canonical weights from a state_dict file.

    Files older than PyTorch 0.4.1 do not count BatchNorm's batches; a missing count becomes 0.

    Raises:
        UserError: If the file is missing, holds more than tensors, or not SimpleCNN.
    """
    import torch

    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"There is no file {file}. Give a state_dict file.") from None
    except Exception as error:  # Damage leads the unpickler to whatever.
        raise UserError(
            f"{file} is no whole state_dict file, or holds more than tensors "
            f"({type(error).__name__}). Save `model.state_dict()` with torch.save."
        ) from error
    if not isinstance(state, Mapping) or not all(torch.is_tensor(t) for t in state.values()):
        raise UserError(
            f"{file} holds something else than named tensors. "
            "Save `model.state_dict()` itself with torch.save."
        )
    try:
        weights = to_canonical(state)
    except TypeError as error:
        raise UserError(
            f"{file} holds a tensor that is neither float32 nor float64 ({error}). "
            "Convert it before, so that no rounding happens unseen."
        ) from error
    for name in BUFFERS:
        if name.endswith("num_batches_tracked"):
            weights.setdefault(name, np.zeros((), np.int64))
    check(weights, str(file))
    return weights


def write_checkpoint(file: Path, weights: Weights) -> None:
    """Write a state_dict file that holds canonical weights, atomically."""
    import torch

    content = io.BytesIO()
    torch.save({name: torch.tensor(array) for name, array in weights.items()}, content)
    with writing(file):
        write_atomically(file, lambda target: target.write(content.getvalue()))


def main() -> None:
    """Run the command line: import or export a state_dict file."""
    import tyro
    from tyro.extras import SubcommandApp

    app = SubcommandApp()

    @app.command(name="import")
    def import_checkpoint(
        checkpoint: tyro.conf.Positional[Path], file: tyro.conf.Positional[Path]
    ) -> None:
        """Turn a state_dict file into a canonical safetensors file."""
        weights = read_checkpoint(checkpoint)
        with writing(file):
            save(file, weights)
        print(f"{file}: SimpleCNN's canonical weights from {checkpoint}")

    @app.command(name="export")
    def export_checkpoint(
        file: tyro.conf.Positional[Path], checkpoint: tyro.conf.Positional[Path]
    ) -> None:
        """Turn a canonical safetensors file into a state_dict file."""
        write_checkpoint(checkpoint, load_simple_cnn(file))
        print(f"{checkpoint}: state_dict of SimpleCNN from {file}")

    with user_errors():
        app.cli(prog="python -m torch_impl.weights")


if __name__ == "__main__":
    main()
