"""Forward and backward pass as one CUDA graph: launched as a whole, not kernel by kernel.

The optimizer's step stays outside. Within a graph Adam computes 1 - 0.999**step on the device in
float32 (capturable or fused, torch 2.14), off by 1.3e-5 at the first step; outside in float64.

Source: "CUDA Graphs", https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from parity.data.draws import Draws

Gradients = Callable[[Draws], tuple[Tensor, Tensor]]
"""Sets the parameters' gradients from a step's draws; returns loss and logits."""

WARM_UP = 3
"""Steps to be done before a capture, as libraries set themselves up in their first calls."""


@contextmanager
def warming_up() -> Iterator[None]:
    """Run what follows on a stream of its own, as the steps before a capture have to."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


class CapturedGradients:
    """The gradients of batches of one size. It holds the addresses of images and weights."""

    def __init__(self, gradients: Gradients, params: Iterable[nn.Parameter], like: Draws) -> None:
        self._draw = Draws(*(None if tensor is None else tensor.clone() for tensor in like))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):  # records, and computes nothing
            self._loss, self._logits = gradients(self._draw)
        self._grads = [(param, param.grad) for param in params]

    def __call__(self, draw: Draws) -> tuple[Tensor, Tensor]:
        """See Gradients."""
        for static, tensor in zip(self._draw, draw, strict=True):
            if static is not None:
                static.copy_(tensor)
        self._graph.replay()
        for param, grad in self._grads:  # a step of another size has set its own
            param.grad = grad
        return self._loss.clone(), self._logits.clone()
