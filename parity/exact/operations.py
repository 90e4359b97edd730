"""The operations of a training step that can be exact one by one: what `--exact-only` names.

Between them they cover the step: all of them exact is `--arithmetic exact`, none is float32. Sums
have no name of their own: those that are no part of a product are the gradients of the biases,
which belong to `dot`, and BatchNorm's, which no library offers apart from the rest of it.
"""

OPERATIONS = {
    "dot": "convolutions and linear layers: products, biases and all their gradients",
    "batchnorm": "BatchNorm: statistics, normalisation, running averages and gradients",
    "selection": "ReLU, max-pool and dropout, which choose values and round none",
    "softmax": "softmax cross-entropy and its gradient",
    "optimizer": "the update of weights and slots",
}
"""What each operation covers, by name, in the order of a step.

`selection` is exact in float32 already: natively too it doubles values or leaves them as they are,
and differs in signs of zeros and in what becomes of NaN and infinity. Ties are the library's choice
on its device, though.
"""
