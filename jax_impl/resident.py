"""Images that lie on the device, and batches made of them there from what the streams drew.

The definition is parity.data.pipeline, whose batches these are, to the bit.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from parity import streams
from parity.data.draws import Draws


class Images(NamedTuple):
    """A split on the device."""

    pixels: Array
    """Shape (m, 32, 32, 3), uint8."""
    labels: Array
    """Classes. Shape (m,), int32."""
    table: Array
    """Normalised values, see `parity.data.pipeline.lookup_table`. Shape (3, 256), float32."""


def place(pixels: np.ndarray, labels: np.ndarray, table: np.ndarray) -> Images:
    """Return a split on JAX's default device."""
    return Images(jnp.asarray(pixels), jnp.asarray(labels, jnp.int32), jnp.asarray(table))


def batch(images: Images, draw: Draws) -> tuple[Array, Array, Array | None]:
    """Return images, labels and kept features as parity.data.pipeline.Batch has them.

    Args:
        images: The split.
        draw: Of one step, on the device: its arrays lack the axis of the steps.
    """
    pixels = images.pixels[draw.chosen]
    if draw.offsets is not None:
        pixels = crop(pixels, draw.offsets, draw.flips)
    values = images.table[jnp.arange(3), pixels]
    keep = None if draw.keep_bits is None else unpack(draw.keep_bits)
    return values, images.labels[draw.chosen], keep


def crop(pixels: Array, offsets: Array, flips: Array) -> Array:
    """Return each image's random crop: see `parity.data.pipeline.crop`."""
    pad = streams.PADDING
    num_images, height, width, _ = pixels.shape
    offsets = offsets.astype(jnp.int32)
    rows = offsets[:, :1] + jnp.arange(height)
    columns = jnp.arange(width)
    columns = offsets[:, 1:] + jnp.where(flips[:, None], columns[::-1], columns)
    padded = jnp.pad(pixels, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    image = jnp.arange(num_images)[:, None, None]
    return padded[image, rows[:, :, None], columns[:, None, :]]


def unpack(bits: Array) -> Array:
    """Return (n, k) bytes as (n, 8 k) bool, the lowest bit first."""
    ones = bits[:, :, None] >> jnp.arange(8, dtype=jnp.uint8) & 1
    return ones.reshape(len(bits), -1).astype(bool)
