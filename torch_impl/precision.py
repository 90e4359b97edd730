"""The precision of products: set, rounded by ourselves, and read back by what comes out."""

# Autograd calls forward and backward with the arguments that each function has.
# pyright: reportIncompatibleMethodOverride=false

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parity import operands
from parity.arithmetic import Arithmetic
from parity.operands import FLOAT32_BITS, Products


def set_precision(arithmetic: Arithmetic) -> None:
    """Set what every backend may do to the operands of float32 products."""
    backends: Any = torch.backends  # its type stubs lack some attributes
    # Covers every backend: no TF32 and no bfloat16 inside a float32 product.
    backends.fp32_precision = "ieee"
    cuda = "tf32" if arithmetic == "tf32" else "ieee"
    onednn = "bf16" if arithmetic == "bf16" else "ieee"
    # One by one, because what was once said of an operation outlives what is said of all.
    backends.cuda.matmul.fp32_precision = cuda
    backends.cudnn.conv.fp32_precision = cuda
    backends.mkldnn.matmul.fp32_precision = onednn
    backends.mkldnn.conv.fp32_precision = onednn


def precision_in_force() -> dict[str, str]:
    """Return the precision of float32 products, read back: "ieee" everywhere, or less."""
    backends: Any = torch.backends  # its type stubs lack these attributes
    return {
        "cuda_matmul": backends.cuda.matmul.fp32_precision,
        "cudnn_conv": backends.cudnn.conv.fp32_precision,
        "mkldnn_matmul": backends.mkldnn.matmul.fp32_precision,
        "mkldnn_conv": backends.mkldnn.conv.fp32_precision,
    }


def round_operand(x: Tensor, bits: int) -> Tensor:
    """Return float32 values rounded to `bits` mantissa bits: see parity.operands."""
    drop = FLOAT32_BITS - bits
    integer = x.contiguous().view(torch.int32)
    odd = (integer >> drop) & 1
    rounded = (integer + ((1 << (drop - 1)) - 1 + odd)) & ~((1 << drop) - 1)
    return torch.where(x.isnan(), x, rounded.view(torch.float32))


class RoundOperand(torch.autograd.Function):
    """Rounds on the way forward; the gradient passes, as it came from a product of rounded ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: int) -> Tensor:
        """Return x rounded."""
        return round_operand(x, bits)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return the gradient as it is."""
        return grad, None


class RoundGradient(torch.autograd.Function):
    """Rounds the gradient on its way into the products that make those of input and weight."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bits: int) -> Tensor:
        """Return y as it is."""
        ctx.bits = bits
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return the gradient rounded."""
        return round_operand(grad, ctx.bits), None


def emulated(layer: Any, x: Tensor, bits: int) -> Tensor:
    """Return a layer whose products, forward and backward, have rounded operands.

    The bias is added afterwards, so that its gradient, a sum and no product, is not rounded.
    """
    weight = RoundOperand.apply(layer.weight, bits)
    unbiased = {"weight": weight, "bias": torch.zeros_like(layer.bias)}
    product = torch.func.functional_call(layer, unbiased, (RoundOperand.apply(x, bits),))
    bias = layer.bias[:, None, None] if product.ndim == 4 else layer.bias
    return RoundGradient.apply(product, bits) + bias


def product_bits(model: Any, amp: torch.dtype | None, device: torch.device) -> dict[str, int]:
    """Return how many mantissa bits the model's products keep of an operand, measured.

    Args:
        model: A SimpleCNN; it is left alone.
        amp: The low precision of autocast, or None.
        device: Where the model is.
    """
    copied = copy.deepcopy(model)
    dtype = copied.fc1.weight.dtype

    def layer(name: str) -> Any:
        def run(x: np.ndarray, w: np.ndarray, g: np.ndarray) -> Products:
            module = copied.get_submodule(name)
            with torch.no_grad():
                module.weight.copy_(torch.from_numpy(w))
                module.bias.zero_()
            module.weight.grad = None
            tensor: Any = torch.from_numpy(x).to(device).requires_grad_()
            with autocast(device, amp):
                y = copied.stages(None)[name](tensor)
            y.backward(torch.from_numpy(g).to(device, y.dtype))
            tensors: Any = (y, tensor.grad, module.weight.grad)
            return Products(*(t.detach().to(dtype).cpu().numpy() for t in tensors))

        return run

    layers = {"linear": layer("fc1"), "conv": layer("conv2")}
    return operands.product_bits(layers, str(dtype).removeprefix("torch."))


def autocast(device: torch.device, amp: torch.dtype | None) -> AbstractContextManager[Any]:
    """Return the context of a mixed forward pass; without a low precision it does nothing."""
    return nullcontext() if amp is None else torch.autocast(device.type, amp)
