"""Every sample of every epoch and worker draws its own; equal seeds give equal draws (the fault of shared
pipelines).
"""

import numpy as np
import pytest
import torch

from vit_rpe.data import DataBundle, DataConfig, Preprocessing, train_loader
from vit_rpe.data.account import BadImages
from vit_rpe.data.images.augment import Augmentation
from vit_rpe.data.images.samples import ImageSamples
from vit_rpe.data.sources import ArrayImages

from .image_files import speckle

NUM_IMAGES = 16
HEIGHT, WIDTH = 24, 40


def equal_images(augment: str, *, seed: int = 5) -> DataBundle:
    """Sixteen copies of one image, so that differences can only come from the draws."""
    images = np.repeat(speckle(HEIGHT, WIDTH)[None], NUM_IMAGES, axis=0)
    preprocessing = Preprocessing((HEIGHT, WIDTH), 3, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    source = ArrayImages(images, np.zeros(NUM_IMAGES, dtype=np.int64), "equal")
    samples = ImageSamples(source, Augmentation(augment, preprocessing), seed=seed, replace_bad=True)
    return DataBundle(samples, samples, ["only"], preprocessing, BadImages(0), "test")


def epochs(bundle: DataBundle, config: DataConfig, numbers: tuple[int, ...] = (0, 1, 2)) -> list[torch.Tensor]:
    """The images of each epoch, (NUM_IMAGES, C, H, W), from one loader that lives on."""
    loader = train_loader(bundle, config, seed=3)
    result = []
    for number in numbers:
        loader.set_epoch(number)
        result.append(torch.cat([images for images, _ in loader]))
    return result


def num_distinct(images: torch.Tensor) -> int:
    return len({image.numpy().tobytes() for image in images})


@pytest.mark.parametrize("augment", ["cifar", "imagenet", "deit"])
@pytest.mark.parametrize("persistent", [False, True])
def test_each_sample_of_each_epoch_and_worker_draws_its_own(augment, persistent):
    config = DataConfig(batch_size=4, num_workers=2, persistent_workers=persistent, start_method="fork")
    seen = epochs(equal_images(augment), config)
    assert num_distinct(torch.cat(seen)) >= 3 * NUM_IMAGES - 1
    assert all(num_distinct(images) == NUM_IMAGES for images in seen)


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_draws_do_not_depend_on_processes(start_method):
    alone = epochs(equal_images("deit"), DataConfig(batch_size=4), (0, 1))
    config = DataConfig(batch_size=4, num_workers=2, start_method=start_method, persistent_workers=True)
    shared = epochs(equal_images("deit"), config, (0, 1))
    for first, second in zip(alone, shared, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_seed_decides_the_draws():
    config = DataConfig(batch_size=4)
    first, again, other = (epochs(equal_images("cifar", seed=seed), config, (1,))[0] for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_resumed_epoch_equals_the_original():
    config = DataConfig(batch_size=4)
    assert torch.equal(epochs(equal_images("deit"), config)[2], epochs(equal_images("deit"), config, (2,))[0])


def test_draws_of_two_transforms_are_independent():
    """Flip and shift must not be decided by the same number: all eight combinations of (flip, left, up)
    occur.
    """
    pipeline = equal_images("light").train.augmentation
    ramp = np.arange(HEIGHT * WIDTH, dtype=np.int64).reshape(HEIGHT, WIDTH)
    image = np.stack([ramp % WIDTH, ramp // WIDTH, 0 * ramp], axis=2).astype(np.uint8)
    seen = set()
    for index in range(200):
        out = pipeline(image, (0, 0, index)).astype(int)
        middle = out[HEIGHT // 2, WIDTH // 2]
        flipped = out[HEIGHT // 2, WIDTH // 2 + 1, 0] < middle[0]
        column = WIDTH - 1 - middle[0] if flipped else middle[0]
        seen.add((bool(flipped), bool(column < WIDTH // 2), bool(middle[1] < HEIGHT // 2)))
    assert len(seen) == 8


def test_flip_is_fair():
    pipeline = equal_images("light").train.augmentation
    image = np.tile(np.arange(WIDTH, dtype=np.uint8)[None, :, None], (HEIGHT, 1, 3))
    middle = WIDTH // 2
    outs = [pipeline(image, (0, epoch, index)) for epoch in range(10) for index in range(60)]
    share = np.mean([int(out[0, middle + 1, 0]) < int(out[0, middle, 0]) for out in outs])
    assert 0.42 < share < 0.58  # 600 fair draws: 4 standard deviations


def test_loading_leaves_the_global_random_state_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - the state under test
    epochs(equal_images("deit"), DataConfig(batch_size=4))
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_both_generators_follow_the_key():
    from vit_rpe.data.draws import KeyedRandom

    def draws(*key):
        keyed.move_to(*key)
        return keyed.numpy.random(), float(keyed.numpy.integers(2**31)), keyed.python.random()

    keyed = KeyedRandom()
    keys = [(seed, epoch, index) for seed in range(3) for epoch in range(3) for index in range(30)]
    first = [draws(*key) for key in keys]
    keyed = KeyedRandom()
    assert [draws(*key) for key in reversed(keys)] == first[::-1]
    for column in range(3):
        assert len({row[column] for row in first}) == len(keys)
    uniform = np.array([[row[0], row[2]] for row in first])
    assert np.abs(uniform.mean(0) - 0.5).max() < 0.07  # 270 draws: 4 standard deviations
    assert abs(np.corrcoef(uniform.T)[0, 1]) < 0.25
