"""A wider network is wider everywhere."""

import subprocess
import sys

PROBE = """
from benchmarks import width
width.widen(2)
from parity.architecture import initial_weights
weights = initial_weights(1)
import torch
from torch_impl.model import SimpleCNN
from torch_impl.weights import from_canonical
model = SimpleCNN(torch.float32)
from_canonical(model, weights)
print(sum(p.numel() for p in model.parameters()), model(torch.zeros(2, 3, 32, 32)).shape[1])
"""


def test_the_wide_network_takes_wide_weights():
    found = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
    )
    convolutions = (9 * 3 + 3) * 64 + (9 * 64 + 3) * 128 + (9 * 128 + 3) * 256
    linear = (4096 + 1) * 512 + (512 + 1) * 10
    assert found.stdout.split() == [str(convolutions + linear), "10"]
