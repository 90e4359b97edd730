import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_impl.model
from jax_impl.model import SimpleCNN, dropout, flatten, max_pool
from jax_impl.weights import from_canonical, to_canonical
from parity.architecture import NUM_FEATURES, PARAMETERS
from parity.exact.operations import OPERATIONS

RTOL = 1e-12
"""float64 rounds to 1e-16; sums of up to 2,048 terms in eight layers lose three digits, and the
reference sums in another order. The mildest fault there is, the biased variance, is 1e-6."""


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def weights(random_weights):
    return random_weights(1, "float64")


@pytest.fixture
def batch(random_batch):
    return random_batch(2)


@pytest.fixture
def model(weights) -> SimpleCNN:
    network = SimpleCNN(jnp.float64)
    nnx.update(network, from_canonical(nnx.state(network), weights))
    return network


def run(model: SimpleCNN, batch, *, training: bool) -> np.ndarray:
    if training:
        model.train()
    else:
        model.eval()
    images = jnp.asarray(batch.images, jnp.float64)
    return np.asarray(model(images, jnp.asarray(batch.keep) if training else None))


@pytest.mark.parametrize("training", [False, True])
def test_the_forward_pass_is_the_networks_definition(model, weights, batch, reference, training):
    logits = run(model, batch, training=training)
    expected = reference(weights, batch, training=training).logits
    np.testing.assert_allclose(logits, expected, rtol=RTOL, atol=RTOL)


def test_running_statistics_are_pytorchs_with_the_unbiased_variance(
    model, weights, batch, reference
):
    run(model, batch, training=True)
    found = to_canonical(nnx.state(model))
    expected = reference(weights, batch, training=True)
    for name, array in expected.statistics.items():
        np.testing.assert_allclose(found[name], array, rtol=RTOL, atol=RTOL)
    for name, array in expected.biased.items():
        assert np.abs(found[name] / array - 1).max() > 1e-6
    for i in (1, 2, 3):
        counter = f"bn{i}.num_batches_tracked"
        assert found[counter] == weights[counter] + 1


def test_a_biased_variance_would_be_seen(model, weights, batch, reference, monkeypatch):
    monkeypatch.setattr(jax_impl.model, "unbiased", lambda var, count: var)
    run(model, batch, training=True)
    found = to_canonical(nnx.state(model))
    for name, array in reference(weights, batch, training=True).biased.items():
        np.testing.assert_allclose(found[name], array, rtol=RTOL, atol=RTOL)


def test_testing_leaves_the_statistics_alone(model, weights, batch):
    run(model, batch, training=False)
    for name, array in to_canonical(nnx.state(model)).items():
        assert array.tobytes() == weights[name].tobytes()


def tied_windows() -> np.ndarray:
    """Return one image of four 2x2 windows, integers that tie: shape (4, 4)."""
    return np.array([[7, 7, 0, 5], [7, 7, 5, 5], [1, 2, 3, 0], [2, 2, 0, 3]], np.float64)


FIRST_OF_THE_LARGEST = [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]


def test_the_first_of_equal_elements_gets_the_whole_gradient():
    x = jnp.asarray(tied_windows()).reshape(1, 4, 4, 1)
    assert max_pool(x).reshape(2, 2).tolist() == [[7, 5], [2, 3]]
    gradient = jax.grad(lambda x: max_pool(x).sum())(x)
    assert gradient.reshape(4, 4).tolist() == FIRST_OF_THE_LARGEST


def test_flatten_is_channel_major():
    x = jnp.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4).transpose(0, 2, 3, 1)
    assert flatten(x).tolist() == np.arange(96).reshape(2, 48).tolist()


def test_dropout_zeroes_what_is_not_kept_and_doubles_the_rest():
    x = jnp.array([[1.5, -2.0, 3.0]])
    assert dropout(x, jnp.array([[True, False, True]])).tolist() == [[3.0, 0.0, 6.0]]
    assert dropout(x, None) is x


def test_the_stages_are_in_the_order_of_the_forward_pass(model):
    blocks = [f"{stage}{i}" for i in (1, 2, 3) for stage in ("conv", "bn", "relu", "pool")]
    head = ["flatten", "dropout", "fc1", "relu4", "fc2"]
    assert list(model.stages(None)) == blocks + head


def network(exact, weights) -> SimpleCNN:
    made = SimpleCNN(jnp.float32, frozenset(exact))
    nnx.update(made, from_canonical(nnx.state(made), weights))
    return made


def stage_outputs(model: SimpleCNN, inputs, keep) -> dict[str, bytes]:
    """Return the bits of what each stage makes of an input of its own."""
    outputs = {}
    for (name, stage), x in zip(model.stages(keep).items(), inputs, strict=True):
        y = stage(x)
        outputs[name] = np.asarray(y).tobytes()
    return outputs


OPERATION_OF = {"conv": "dot", "fc": "dot", "bn": "batchnorm", "relu": "selection"} | {
    "pool": "selection",
    "dropout": "selection",
}


def test_a_stage_is_exact_if_and_only_if_its_operation_is_named(random_weights, batch):
    weights = random_weights(1, "float32")
    keep, x, inputs = jnp.asarray(batch.keep), jnp.asarray(batch.images), []
    for stage in network((), weights).stages(keep).values():
        inputs.append(x)
        x = stage(x)
    # Only here does selection differ, signs of zeros aside.
    inputs[2] = inputs[2].at[0, 0, 0, 0].set(-jnp.inf)
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
    tensors = to_canonical(nnx.state(SimpleCNN(dtype), nnx.Param))
    assert {n: t.shape for n, t in tensors.items()} == {n: t.shape for n, t in PARAMETERS.items()}
    assert {str(t.dtype) for t in tensors.values()} == {dtype}
    # Golden: the article's parameter count, which its logs print.
    assert sum(t.size for t in tensors.values()) == 620_810
    assert tensors["fc1.weight"].shape[1] == NUM_FEATURES
