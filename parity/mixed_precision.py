"""Mixed precision: which layers compute in what type, and how a loss is scaled, as data.

Only the forward pass of training and its gradient are mixed, as in the article; testing is float32.
"""

import numpy as np

LOW, FLOAT32 = "low", "float32"

POLICY = {"conv": LOW, "bn": FLOAT32, "fc": LOW, "loss": FLOAT32}
"""The type in which a layer computes. Low: input, weight and bias are rounded to it, and so is the
output. BatchNorm computes in float32, statistics included, and returns its input's type, as ReLU,
max-pool and dropout do, which round nothing. Weights, buffers and optimizer are float32.

Source: torch.autocast's op lists (torch.amp's documentation: conv2d, linear and baddbmm in the
lower precision, cross_entropy in float32; batch_norm in neither list, with float32 weights)."""

OUTPUTS = {
    "conv": LOW,
    "bn": LOW,
    "relu": LOW,
    "pool": LOW,
    "flatten": LOW,
    "dropout": LOW,
    "fc": LOW,
}
"""The type of every stage's output, by the beginning of its name: what follows from the policy."""

INIT_SCALE = 2.0**16
GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
GROWTH_INTERVAL = 2000
"""Source: torch.amp.GradScaler's defaults and rules. A gradient that is not finite skips the update
and multiplies the scale by the backoff factor; so many updates in a row, by the growth factor."""

SCALE = "loss_scale.scale"
"""Canonical name of the loss's scale, float32."""
GROWTH_TRACKER = "loss_scale.growth_tracker"
"""Canonical name of the number of updates since the scale changed, int32."""


def initial_scale() -> dict[str, np.ndarray]:
    """Return the state of a loss scaler before the first step, by canonical name."""
    return {SCALE: np.array(INIT_SCALE, np.float32), GROWTH_TRACKER: np.array(0, np.int32)}
