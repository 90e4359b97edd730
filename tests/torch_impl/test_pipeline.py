import numpy as np
import pytest
from torchvision import transforms

from parity.data import cifar10, digits, pipeline
from parity.data.dataset import Split, canonical


@pytest.mark.parametrize("constants", [cifar10, digits])
def test_the_look_up_table_is_torchvisions_to_tensor_and_normalize_to_the_bit(constants):
    pixels = np.arange(32 * 32 * 3).astype(np.uint8).reshape(1, 32, 32, 3)
    pixels[..., 1:] = pixels[..., :1]  # every value in every channel
    split = Split(pixels, np.zeros(1, np.uint8))
    dataset = canonical(
        name="x", source="x", train=split, test=split, mean=constants.MEAN, std=constants.STD
    )
    images = pipeline.normalise(pixels, pipeline.lookup_table(dataset))
    tensor = transforms.ToTensor()(pixels[0])
    expected = transforms.Normalize(constants.MEAN, constants.STD)(tensor)
    assert len(np.unique(pixels)) == 256
    assert images[0].transpose(2, 0, 1).tobytes() == expected.numpy().tobytes()
