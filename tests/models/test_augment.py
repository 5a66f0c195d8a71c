"""Crops and mirror images are a function of record, seed and epoch alone."""

import torch

from s3t.models.encoders import augmented

IMAGE = torch.arange(2 * 5 * 6, dtype=torch.float32).view(2, 5, 6)


def drawn(seed, record=b"r", *, crop=2, flip=True):
    return augmented(IMAGE, crop=crop, flip=flip, seed=seed, record=record)


def test_the_same_record_and_seed_give_the_same_image_and_others_others():
    before = IMAGE.clone()
    assert drawn(1).equal(drawn(1))
    assert IMAGE.equal(before)  # what comes in stays as it is
    assert len({drawn(seed).numpy().tobytes() for seed in range(40)}) > 20
    assert len({drawn(1, bytes([record])).numpy().tobytes() for record in range(40)}) > 20


def test_a_crop_is_a_window_of_the_image_with_its_edges_mirrored():
    padded = torch.nn.functional.pad(IMAGE[None], [1] * 4, mode="reflect")[0]
    windows = {padded[:, y : y + 5, x : x + 6].numpy().tobytes() for y in range(3) for x in range(3)}
    assert {drawn(seed, crop=1, flip=False).numpy().tobytes() for seed in range(200)} == windows


def test_half_of_the_images_are_mirrored():
    found = [drawn(seed, crop=0) for seed in range(400)]
    mirrored = sum(image.equal(IMAGE.flip(-1)) for image in found)
    assert mirrored + sum(image.equal(IMAGE) for image in found) == 400
    assert 150 < mirrored < 250
