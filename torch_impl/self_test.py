"""PyTorch's part of the start-up test of the exact arithmetic."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from parity.exact import self_test
from parity.exact.transcendental import exp
from torch_impl import ops
from torch_impl.engines import Engine


def check(device: torch.device, engine: Engine) -> None:
    """Refuse the device if its arithmetic does not hold.

    Raises:
        UserError: Names the operation.
    """

    def here(function: Callable[..., Tensor]) -> Callable[..., np.ndarray]:
        return lambda *arrays: (
            function(*(torch.tensor(a, device=device) for a in arrays)).cpu().numpy()
        )

    def fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return ops.to_float32(a.double() * b.double() + c.double())

    def chained(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        product = ops.to_float32(a.double() * b.double())
        return ops.to_float32(product.double() + c.double())

    operations = self_test.Operations(
        product=here(lambda a, b: engine.product(engine.operand(a), engine.operand(b))),
        to_float32=here(ops.to_float32),
        square_root=here(ops.square_root),
        fused=here(fused),
        chained=here(chained),
        divide=here(torch.divide),
        exp=here(exp),
    )
    self_test.self_test(str(device), operations)
