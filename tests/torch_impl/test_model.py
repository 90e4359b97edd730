import numpy as np
import pytest
import torch
from torch import nn

from parity.architecture import NUM_FEATURES, PARAMETERS
from parity.exact.operations import OPERATIONS
from torch_impl.model import PatchConv2d, SimpleCNN, dropout, flatten, max_pool
from torch_impl.weights import from_canonical, to_canonical

RTOL = 1e-12
"""float64 rounds to 1e-16; sums of up to 2,048 terms in eight layers lose three digits, and the
reference sums in another order. The mildest fault there is, the biased variance, is 1e-6."""


@pytest.fixture
def weights(random_weights):
    return random_weights(1, "float64")


@pytest.fixture
def batch(random_batch):
    return random_batch(2)


@pytest.fixture
def model(weights) -> SimpleCNN:
    network = SimpleCNN(torch.float64)
    from_canonical(network, weights)
    return network


def run(model: SimpleCNN, batch, *, training: bool) -> np.ndarray:
    model.train(training)
    images = torch.from_numpy(batch.images).double().permute(0, 3, 1, 2)
    with torch.no_grad():
        return model(images, torch.from_numpy(batch.keep) if training else None).numpy()


@pytest.mark.parametrize("training", [False, True])
def test_the_forward_pass_is_the_networks_definition(model, weights, batch, reference, training):
    logits = run(model, batch, training=training)
    expected = reference(weights, batch, training=training).logits
    np.testing.assert_allclose(logits, expected, rtol=RTOL, atol=RTOL)


@pytest.mark.parametrize("training", [False, True])
def test_the_forward_pass_is_that_of_a_plain_sequential(model, weights, batch, training):
    layers = []
    for i, (inputs, outputs) in enumerate(((3, 32), (32, 64), (64, 128)), start=1):
        layers.append((f"conv{i}", nn.Conv2d(inputs, outputs, 3, padding=1)))
        layers += [(f"bn{i}", nn.BatchNorm2d(outputs)), (f"relu{i}", nn.ReLU())]
        layers.append((f"pool{i}", nn.MaxPool2d(2)))
    layers += [("flatten", nn.Flatten()), ("dropout", nn.Dropout(0.0))]
    layers += [("fc1", nn.Linear(2048, 256)), ("relu4", nn.ReLU()), ("fc2", nn.Linear(256, 10))]
    plain = nn.Sequential()
    for name, layer in layers:
        plain.add_module(name, layer)
    plain = plain.double().train(training)
    plain.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    kept = batch._replace(keep=np.ones_like(batch.keep))
    with torch.no_grad():
        model.fc1.weight /= 2 if training else 1  # undoes the scale of a dropout that keeps all
    logits = run(model, kept, training=training)
    images = torch.from_numpy(batch.images).double().permute(0, 3, 1, 2)
    np.testing.assert_allclose(logits, plain(images).detach(), rtol=RTOL, atol=RTOL)


def test_running_statistics_are_pytorchs_with_the_unbiased_variance(
    model, weights, batch, reference
):
    run(model, batch, training=True)
    found = to_canonical(model.state_dict())
    expected = reference(weights, batch, training=True)
    for name, array in expected.statistics.items():
        np.testing.assert_allclose(found[name], array, rtol=RTOL, atol=RTOL)
    for name, array in expected.biased.items():
        assert np.abs(found[name] / array - 1).max() > 1e-6
    for i in (1, 2, 3):
        counter = f"bn{i}.num_batches_tracked"
        assert found[counter] == weights[counter] + 1


def test_testing_leaves_the_statistics_alone(model, weights, batch):
    run(model, batch, training=False)
    for name, array in to_canonical(model.state_dict()).items():
        assert array.tobytes() == weights[name].tobytes()


def tied_windows() -> np.ndarray:
    """Return one image of four 2x2 windows, integers that tie: shape (4, 4)."""
    return np.array([[7, 7, 0, 5], [7, 7, 5, 5], [1, 2, 3, 0], [2, 2, 0, 3]], np.float64)


FIRST_OF_THE_LARGEST = [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def test_the_first_of_equal_elements_gets_the_whole_gradient():
    x = torch.tensor(tied_windows()).view(1, 1, 4, 4).requires_grad_()
    pooled = max_pool(x)
    assert pooled.view(2, 2).tolist() == [[7, 5], [2, 3]]
    pooled.sum().backward()
    assert x.grad is not None
    assert x.grad.view(4, 4).tolist() == FIRST_OF_THE_LARGEST


def test_flatten_is_channel_major():
    x = torch.arange(2 * 3 * 4 * 4).view(2, 3, 4, 4)
    assert flatten(x).tolist() == np.arange(96).reshape(2, 48).tolist()


def test_dropout_zeroes_what_is_not_kept_and_doubles_the_rest():
    x = torch.tensor([[1.5, -2.0, 3.0]])
    assert dropout(x, torch.tensor([[True, False, True]])).tolist() == [[3.0, 0.0, 6.0]]
    assert dropout(x, None) is x


def test_the_stages_are_in_the_order_of_the_forward_pass(model):
    blocks = [f"{stage}{i}" for i in (1, 2, 3) for stage in ("conv", "bn", "relu", "pool")]
    head = ["flatten", "dropout", "fc1", "relu4", "fc2"]
    assert list(model.stages(None)) == blocks + head


def network(exact, weights) -> SimpleCNN:
    made = SimpleCNN(torch.float32, frozenset(exact))
    from_canonical(made, weights)
    return made


def stage_outputs(model: SimpleCNN, inputs, keep) -> dict[str, bytes]:
    """Return the bits of what each stage makes of an input of its own."""
    outputs = {}
    for (name, stage), x in zip(model.stages(keep).items(), inputs, strict=True):
        y = stage(x)
        outputs[name] = y.detach().numpy().tobytes()
    return outputs


OPERATION_OF = {"conv": "dot", "fc": "dot", "bn": "batchnorm", "relu": "selection"} | {
    "pool": "selection",
    "dropout": "selection",
}


@torch.no_grad()
def test_a_stage_is_exact_if_and_only_if_its_operation_is_named(random_weights, batch):
    weights = random_weights(1, "float32")
    keep, x, inputs = (
        torch.from_numpy(batch.keep),
        torch.from_numpy(batch.images).permute(0, 3, 1, 2).contiguous(),
        [],
    )
    for stage in network((), weights).stages(keep).values():
        inputs.append(x)
        x = stage(x)
    # Only here does selection differ, signs of zeros aside.
    inputs[2][0, 0, 0, 0] = -torch.inf
    native, exact = (stage_outputs(network(e, weights), inputs, keep) for e in ((), OPERATIONS))
    differing = {name for name in native if native[name] != exact[name]}
    assert {"conv2", "bn1", "relu1", "fc1"} <= differing
    for operation in OPERATIONS:
        mixed = stage_outputs(network((operation,), weights), inputs, keep)
        for name, found in mixed.items():
            mine = OPERATION_OF.get(name.rstrip("1234")) == operation
            assert found == (exact if mine else native)[name], (operation, name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_parameter_has_the_runs_type_and_the_canonical_shape(dtype):
    tensors = dict(SimpleCNN(getattr(torch, dtype)).named_parameters())
    assert {n: tuple(t.shape) for n, t in tensors.items()} == {
        n: t.shape for n, t in PARAMETERS.items()
    }
    assert {str(t.dtype) for t in tensors.values()} == {f"torch.{dtype}"}
    # Golden: the article's parameter count, which its logs print.
    assert sum(t.numel() for t in tensors.values()) == 620_810
    assert tensors["fc1.weight"].shape[1] == NUM_FEATURES


def test_a_convolution_of_patches_is_pytorchs_own():
    torch.manual_seed(3)
    own, plain = PatchConv2d(3, 32, 3, padding=1), nn.Conv2d(3, 32, 3, padding=1)
    own.double().load_state_dict(plain.double().state_dict())
    images = torch.randn(5, 3, 32, 32, dtype=torch.float64)
    weight = torch.randn(5, 32, 32, 32, dtype=torch.float64)
    found = []
    for layer in (own, plain):
        x = images.clone().requires_grad_()
        y = layer(x)
        (y * weight).sum().backward()
        assert layer.bias is not None
        found.append((y, x.grad, layer.weight.grad, layer.bias.grad))
    for a, b in zip(*found, strict=True):
        # Relative L2: float64 rounds to 1e-16, and a random walk over the 5,120 terms of a weight's
        # gradient ends at some 70 times that.
        assert float(((a - b).norm() / b.norm()).detach()) < 1e-14
