"""The floor counts what a step does, no more."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import floor
from benchmarks.article_way import SimpleCNN


def test_operations_are_those_that_pytorch_counts():
    # torch 2.14.1 counts products alone, and no gradient of the images, which need none.
    model, images = SimpleCNN(), torch.zeros(4, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    assert floor.operations(4) == counter.get_total_flops()


def test_wide_layers_multiply_by_the_square_of_the_width():
    narrow, wide = floor.operations(128), floor.operations(128, width=4)
    assert wide / narrow == pytest.approx(16, rel=0.1)  # the first and the last layer by 4


def test_a_step_moves_at_least_each_tensor_that_it_keeps():
    # By hand, in values: six times the convolutions' outputs, 1.5 times those pooled, the images
    # twice; the parameters, eight times.
    parameters = sum(parameter.numel() for parameter in SimpleCNN().parameters())
    outputs = 32 * 1024 + 64 * 256 + 128 * 64
    assert floor.traffic_bytes(2) == 4 * (2 * (7.5 * outputs + 2 * 3072) + 8 * parameters)
