"""The floor of a training step: the operations and the memory traffic that it cannot do without."""

from itertools import pairwise

from parity.architecture import CHANNELS, NUM_CLASSES, NUM_FEATURES, NUM_HIDDEN, PARAMETERS

SIZE = 32
"""Of an image, in pixels."""

FLOAT_BYTES = 4


def operations(batch_size: int, *, width: int = 1) -> int:
    """Return the multiplications and additions of a step's products, forward and both gradients."""
    channels = _channels(width)
    forward, first = 0, 0
    for layer, (inputs, outputs) in enumerate(pairwise(channels)):
        forward += 2 * 9 * inputs * outputs * (SIZE >> layer) ** 2
        first = first or forward
    hidden = width * NUM_HIDDEN
    forward += 2 * (width * NUM_FEATURES * hidden + hidden * NUM_CLASSES)
    return batch_size * (3 * forward - first)  # nobody asks for the images' gradient


def traffic_bytes(batch_size: int) -> int:
    """Return the bytes that a step with Adam reads and writes if all is fused that can be.

    The output of a convolution is written, then read by BatchNorm with ReLU and max-pool, by their
    gradient's two sums and by the gradient itself, which is written and read: six times. A pooled
    output and its gradient too: each written, and read twice. Of a parameter: value, two moments
    and gradient, read and written. Linear layers and logits are too small to count.
    """
    outputs = sum(c * (SIZE >> layer) ** 2 for layer, c in enumerate(CHANNELS[1:]))
    images = 2 * CHANNELS[0] * SIZE**2  # read forward and for the weights' gradient
    activations = batch_size * (6 * outputs + 6 * outputs // 4 + images)
    parameters = 0
    for tensor in PARAMETERS.values():
        size = 1
        for n in tensor.shape:
            size *= n
        parameters += size
    return FLOAT_BYTES * (activations + 8 * parameters)


def _channels(width: int) -> tuple[int, ...]:
    return (CHANNELS[0], *(width * channels for channels in CHANNELS[1:]))
