"""Images that lie on the device, and batches made of them there from what the streams drew.

The definition is parity.data.pipeline, whose batches these are, to the bit.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from parity import streams
from parity.data.draws import Draws


class Images(NamedTuple):
    """A split on the device."""

    pixels: Tensor
    """Shape (m, 32, 32, 3), uint8."""
    labels: Tensor
    """Classes. Shape (m,), int64."""
    table: Tensor
    """Normalised values, see `parity.data.pipeline.lookup_table`. Shape (3, 256), float32."""


def place(
    pixels: np.ndarray, labels: np.ndarray, table: np.ndarray, device: torch.device
) -> Images:
    """Return a split on a device."""
    classes = torch.tensor(labels, dtype=torch.int64, device=device)
    return Images(torch.tensor(pixels, device=device), classes, torch.tensor(table, device=device))


def steps(draws: Draws, device: torch.device) -> Iterator[Draws]:
    """Yield the draws of each step, on a device."""
    there = [None if a is None else torch.from_numpy(a).to(device) for a in draws]
    for step in range(len(draws.chosen)):
        yield Draws(*(None if tensor is None else tensor[step] for tensor in there))


def batch(images: Images, draw: Draws) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return images, labels and kept features as parity.data.pipeline.Batch has them.

    Args:
        images: The split.
        draw: Of one step, on the device: its arrays lack the axis of the steps.
    """
    pixels = images.pixels[draw.chosen]
    if draw.offsets is not None:
        pixels = crop(pixels, draw.offsets, draw.flips)
    values = images.table[torch.arange(3, device=pixels.device), pixels.long()]
    keep = None if draw.keep_bits is None else unpack(draw.keep_bits)
    return values, images.labels[draw.chosen], keep


def crop(pixels: Tensor, offsets: Tensor, flips: Tensor) -> Tensor:
    """Return each image's random crop: see `parity.data.pipeline.crop`."""
    pad = streams.PADDING
    num_images, height, width, _ = pixels.shape
    offsets = offsets.long()
    rows = offsets[:, :1] + torch.arange(height, device=pixels.device)
    columns = torch.arange(width, device=pixels.device)
    columns = offsets[:, 1:] + torch.where(flips[:, None], columns.flip(0), columns)
    padded = F.pad(pixels, (0, 0, pad, pad, pad, pad))
    image = torch.arange(num_images, device=pixels.device)[:, None, None]
    return padded[image, rows[:, :, None], columns[:, None, :]]


def unpack(bits: Tensor) -> Tensor:
    """Return (n, k) bytes as (n, 8 k) bool, the lowest bit first."""
    ones = bits[:, :, None] >> torch.arange(8, dtype=torch.uint8, device=bits.device) & 1
    return ones.reshape(len(bits), -1).bool()
