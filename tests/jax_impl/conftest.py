"""Where the tests of JAX's operations compute."""

import jax
import pytest

from jax_impl.trainer import select_device
from parity import platforms


@pytest.fixture(scope="session", autouse=True)
def _device(request):
    device = select_device(platforms.parse(request.config.option.device, "jax"))
    jax.config.update("jax_default_device", device)
