"""A stage with all its parents, each checked against the one above it before anything of it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from s3t.errors import IntegrityError
from s3t.stages import Stage
from s3t.store.artifacts import Artifact, Artifacts


def read_chain(
    store: Artifacts, stage: Stage, *, keys: Mapping[Stage, str], slice_digests: Sequence[str]
) -> list[Artifact]:
    """The artifacts of a stage's chain, from the top block down.

    The right key with other bytes is found here: a manifest holds the SHA-256 of its own tensors and of its parent's.

    Args:
        keys: key of every live stage.
        slice_digests: today's digests of the stage's slices, in its order.
    """
    chain: list[Artifact] = []
    for link in stage.chain:
        artifact = store.get(link.shard, keys[link])
        manifest = artifact.manifest
        if manifest.prefix != link.prefix:
            raise IntegrityError(f"{link}: its manifest names the prefix {manifest.prefix}; {_REMEDY}")
        if manifest.slice_digests != tuple(slice_digests[: link.depth]):
            raise IntegrityError(f"{link}: it was trained on slices that have changed since; {_REMEDY}")
        parent = None if manifest.parent is None else (manifest.parent.key, manifest.parent.sha256)
        above = (chain[-1].manifest.key, chain[-1].manifest.sha256) if chain else None
        if parent != above:
            raise IntegrityError(f"{link}: it was trained on another parent than the one stored; {_REMEDY}")
        chain.append(artifact)
    return chain


def lost_stages(store: Artifacts, keys: Mapping[Stage, str]) -> dict[Stage, str]:
    """Live stages, and their keys, that have lost their own artifact or that of a stage before them."""
    present = store.present((stage.shard, key) for stage, key in keys.items())
    whole = {stage for stage, key in keys.items() if (stage.shard, key) in present}
    return {stage: key for stage, key in keys.items() if not whole.issuperset(stage.chain)}


_REMEDY = "remove its files (artifacts/shard-*/KEY.*, with the key of `s3t audit`) and run `s3t repair`"
