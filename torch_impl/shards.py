"""A batch split over processes of torch.distributed: what all of them must know of it together.

Without a process group the one process holds the whole batch.
"""

import torch
from torch import Tensor
from torch import distributed as dist


def count() -> int:
    """Return the number of equal parts that a batch has."""
    return dist.get_world_size() if dist.is_initialized() else 1


def total(x: Tensor) -> Tensor:
    """Return the sum of x over all parts; exact, and so in any order, if x holds integers."""
    return _reduced(x, dist.ReduceOp.SUM)


def largest(x: Tensor) -> Tensor:
    """Return the largest x of all parts."""
    return _reduced(x, dist.ReduceOp.MAX)


def _reduced(x: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
    if count() == 1:
        return x
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x, operation)
    return x
