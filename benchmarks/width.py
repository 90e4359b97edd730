"""A wider network, for measurements alone: width is no setting of the product."""

from parity import architecture


def widen(factor: int) -> None:
    """Give every hidden layer `factor` times its units; before anything reads the architecture."""
    first, *hidden = architecture.CHANNELS
    architecture.CHANNELS = (first, *(factor * channels for channels in hidden))
    architecture.NUM_FEATURES *= factor
    architecture.NUM_HIDDEN *= factor
    architecture.PARAMETERS.update(architecture._layers())
    for name, tensor in architecture.BUFFERS.items():
        architecture.BUFFERS[name] = tensor._replace(shape=tuple(factor * n for n in tensor.shape))
