import numpy as np
import pytest
import torch

from parity import operands
from parity.arithmetic import EMULATED, OPERAND_BITS
from parity.config import TrainConfig
from parity.errors import UserError
from parity.mixed_precision import OUTPUTS, POLICY
from parity.platforms import Platform
from torch_impl import precision
from torch_impl import trainer as module
from torch_impl.model import SimpleCNN
from torch_impl.trainer import Trainer

_CHOSEN = """
00000001 007fffff 80000fff 00001000 00003000 7f7fffff ff7fffff 7f800000 ff800000 7f800001 ffc00001
80000000 3f801000 3f803000 3f808000 3f818000
"""
_RANDOM = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32)
EDGES = np.array([*(int(word, 16) for word in _CHOSEN.split()), *_RANDOM], np.uint32).view(
    np.float32
)
"""Subnormals, the largest, infinities, NaN, ties to even and to odd; then any bits at all."""


@pytest.fixture(autouse=True)
def _leave_precision_as_it_was():
    yield
    precision.set_precision("float32")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def make_trainer(**settings) -> Trainer:
    return Trainer(TrainConfig(**settings), Platform("cpu"), 1)


@pytest.mark.parametrize("bits", EMULATED.values())
def test_rounding_is_that_of_the_definition_to_the_bit(bits):
    rounded = precision.round_operand(torch.from_numpy(EDGES.copy()), bits).numpy()
    assert rounded.tobytes() == operands.round_operand(EDGES, bits).tobytes()


@pytest.mark.parametrize("mode", ["float32", "float64", "amp-bf16", "amp-fp16", *EMULATED])
def test_a_mode_is_what_comes_out_of_its_products(mode):
    environment = make_trainer(arithmetic=mode).environment()
    assert set(environment["product_bits"].values()) == {OPERAND_BITS[mode]}


def test_measuring_leaves_the_model_alone(random_weights):
    trainer = make_trainer(arithmetic="amp-bf16")
    before = {n: t.clone() for n, t in trainer._model.state_dict().items()}
    trainer.environment()
    assert all(torch.equal(t, before[n]) for n, t in trainer._model.state_dict().items())


@pytest.mark.parametrize("layer", ["fc1", "conv1", "conv2"])
@pytest.mark.parametrize("bits", EMULATED.values())
def test_emulation_rounds_the_operands_of_all_three_products_and_nothing_else(layer, bits):
    # In float64 sums are exact to 1e-16, so any operand that is not rounded would show at 1e-4.
    torch.manual_seed(0)
    plain = SimpleCNN(torch.float32)
    module = plain.get_submodule(layer)
    shape = {"fc1": (4, 2048), "conv1": (4, 3, 8, 8), "conv2": (4, 32, 8, 8)}[layer]
    x = torch.randn(shape, requires_grad=True)
    y = precision.emulated(module, x, bits)
    g = torch.randn_like(y)
    y.backward(g)

    def rounded(t):
        values = operands.round_operand(t.detach().numpy().copy(), bits)
        return torch.from_numpy(values).double().requires_grad_()

    wx, ww = rounded(x), rounded(module.weight)
    product = (
        torch.nn.functional.linear(wx, ww)
        if layer == "fc1"
        else torch.nn.functional.conv2d(wx, ww, padding=1)
    )
    product.backward(rounded(g).detach())
    dims = (0,) if layer == "fc1" else (0, 2, 3)
    bias = module.bias.detach().double()
    expected = (
        (y, product + (bias if layer == "fc1" else bias[:, None, None])),
        (x.grad, wx.grad),
        (module.weight.grad, ww.grad),
        (module.bias.grad, g.double().sum(dims)),
    )
    for found, wanted in expected:
        # float32 sums of up to 2,048 terms; an operand not rounded is off by 1e-4 or more.
        error = (found.double() - wanted).norm() / wanted.norm()
        assert error < 2e-6


@pytest.mark.parametrize("mode", ["amp-bf16", "amp-fp16"])
def test_autocast_follows_the_policy(mode):
    trainer = make_trainer(arithmetic=mode)
    low = trainer._amp
    x = torch.randn(2, 3, 32, 32)
    with precision.autocast(torch.device("cpu"), low):
        for name, stage in trainer._model.stages(torch.ones(2, 2048, dtype=torch.bool)).items():
            x = stage(x)
            wanted = OUTPUTS[name.rstrip("0123456789")]
            assert x.dtype == (low if wanted == "low" else torch.float32), name
        assert trainer._cross_entropy(x, torch.tensor([1, 2])).dtype == getattr(
            torch, POLICY["loss"]
        )
    assert {p.dtype for p in trainer._model.parameters()} == {torch.float32}


@pytest.mark.parametrize("mode", ["tf32", "bf16"])
def test_a_permission_is_read_back_from_the_backends(mode):
    precision.set_precision(mode)
    found = precision.precision_in_force()
    of = {"tf32": ("cuda_matmul", "cudnn_conv"), "bf16": ("mkldnn_matmul", "mkldnn_conv")}[mode]
    assert found == {name: mode if name in of else "ieee" for name in found}
    precision.set_precision("float32")
    assert set(precision.precision_in_force().values()) == {"ieee"}


def test_what_this_device_cannot_do_is_refused_with_the_reason():
    with pytest.raises(UserError, match="TF32 is of NVIDIA GPUs, and this is cpu"):
        make_trainer(arithmetic="tf32")
    with pytest.raises(UserError, match="Use --no-autotune"):
        make_trainer(autotune=True)


@pytest.mark.parametrize(("capability", "refused"), [((7, 5), True), ((8, 0), False)])
def test_a_gpus_capability_is_asked_of_the_framework(monkeypatch, capability, refused):
    # A GPU in name alone: everything else is on the CPU.
    monkeypatch.setattr(module, "select_device", lambda platform: torch.device("cpu"))
    monkeypatch.setattr(module, "capability", lambda device: capability)
    config = TrainConfig(arithmetic="tf32", autotune=True, deterministic=False)
    if refused:
        with pytest.raises(UserError, match=r"gpu:0 \(compute capability 7.5\) has no TF32"):
            Trainer(config, Platform("gpu"), 1)
        return
    found = Trainer(config, Platform("gpu"), 1).environment()
    assert found["cudnn_benchmark"] is True
    assert found["deterministic_algorithms"] is False
    assert found["precision"]["cuda_matmul"] == found["precision"]["cudnn_conv"] == "tf32"
    # The permission is there and the CPU does not use it: only the products tell.
    assert set(found["product_bits"].values()) == {23}


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_batch_norm_computes_in_float32_whatever_comes_in(low):
    assert POLICY["bn"] == "float32"
    torch.manual_seed(0)
    mixed, plain = SimpleCNN(torch.float32).bn1, SimpleCNN(torch.float32).bn1
    x = torch.randn(4, 32, 8, 8).add(3).to(low)
    with precision.autocast(torch.device("cpu"), low):
        y = mixed(x)
    wanted = plain(x.float())
    # bfloat16 sums of 256 terms would be off by 1e-2.
    torch.testing.assert_close(mixed.running_mean, plain.running_mean, rtol=1e-6, atol=1e-6)
    # The output alone is rounded: half a unit in the last place, and one where float32 ties.
    torch.testing.assert_close(y.float(), wanted, rtol=torch.finfo(low).eps, atol=1e-6)
