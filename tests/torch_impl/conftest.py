"""Where the tests of PyTorch's operations compute."""

import pytest
import torch

from parity import platforms
from torch_impl.trainer import select_device


@pytest.fixture(scope="session", autouse=True)
def _device(request):
    torch.set_default_device(select_device(platforms.parse(request.config.option.device, "torch")))
    yield
    torch.set_default_device("cpu")
