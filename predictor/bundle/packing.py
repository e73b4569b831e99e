"""Trees in few bytes: what can be worked out is not stored, and the rest deflates well.

Trees are numbered in level order, so the k-th inner node of a tree (from 0) has the nodes 1 + 2k
and 2 + 2k of that tree as children, and no child index is needed (Jacobson, Space-efficient static
trees and graphs, FOCS 1989). A leaf keeps its value where an inner node keeps its threshold, as in
XGBoost. Leaves are multiples of ``LEAF_STEP``: the last bits of a float are noise that no
compression removes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from predictor.bundle.format import refusal
from predictor.timing.forest import LEAF, Forest

LEAF_STEP: Final = 2.0**-14
"""Of leaves, in log ratios. A sum of 150 trees moves by LEAF_STEP * sqrt(150 / 12), about 2e-4."""
DECODER_BYTES: Final = 64_000_000
"""Memory that the dictionary of an xz file may ask for; ours has 8 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedForest:
    """The arrays that a forest's file holds beside its base."""

    root: NDArray[np.int32]
    """First node of each tree, rising from 0, shape (trees,)."""
    feature: NDArray[np.int16]
    """Column that a node looks at, ``LEAF`` for leaves, shape (nodes,)."""
    number: NDArray[np.float32]
    """Threshold of an inner node, value of a leaf, shape (nodes,)."""
    missing_left: NDArray[np.bool_]
    """Whether NaN goes left, shape (nodes,)."""


def packed(forest: Forest) -> PackedForest:
    """Return a forest whose trees lie one after the other, each in level order, without children.

    :func:`~predictor.bundle.trees.forest_of` numbers nodes so.
    """
    leaf = forest.feature == LEAF
    return PackedForest(root=forest.root, feature=forest.feature.astype(np.int16),
                        number=np.where(leaf, forest.value, forest.threshold),
                        missing_left=forest.missing_left)


def unpacked(trees: PackedForest, base: float) -> Forest:
    """Return the forest of packed trees that adds up from ``base``.

    Raises
    ------
    InputError
        When arrays differ in length, roots do not rise from node 0, a tree has not one leaf more
        than inner nodes, or :class:`~predictor.timing.forest.Forest` refuses what comes out.
    """
    nodes = len(trees.feature)
    for name in ("number", "missing_left"):
        if len(getattr(trees, name)) != nodes:
            raise refusal("arrays", f"{name} has {len(getattr(trees, name))} entries for {nodes} "
                          "nodes")
    feature = trees.feature.astype(np.int32)
    leaf = feature == LEAF
    left = np.where(leaf, LEAF, _left_children(trees.root, leaf)).astype(np.int32)
    none = np.float32(0)
    return Forest(root=trees.root, feature=feature, missing_left=trees.missing_left, base=base,
                  left=left, right=np.where(leaf, LEAF, left + 1).astype(np.int32),
                  threshold=np.where(leaf, none, trees.number),
                  value=np.where(leaf, trees.number, none))


def _left_children(root: NDArray[np.int32], leaf: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the left child that each node has if it is an inner one, shape (nodes,)."""
    start = root.astype(np.int64)
    bounds = np.append(start, len(leaf))
    sizes = np.diff(bounds)
    if bounds[0] != 0 or (sizes <= 0).any():
        raise refusal("arrays", f"root does not rise from 0 to the last of {len(leaf)} nodes")
    before = np.zeros(len(leaf) + 1, dtype=np.int64)
    np.cumsum(~leaf, out=before[1:])  # inner nodes before each node, of all trees
    if (sizes != 1 + 2 * np.diff(before[bounds])).any():
        raise refusal("arrays", "feature has a tree without one leaf more than inner nodes")
    first = start + 1 - 2 * before[start]
    return np.asarray(np.repeat(first, sizes) + 2 * before[:-1])


def stripped(model: dict[str, Any]) -> dict[str, Any]:
    """Return an XGBoost model, as its JSON, with rounded leaves and without statistics.

    Gains, cover and the weights of inner nodes (doc/model.schema) take half the room and have no
    part in a prediction. ``model`` itself is changed.
    """
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        number = np.array(tree["split_conditions"], dtype=np.float64)
        leaf = np.array(tree["left_children"]) == LEAF
        number[leaf] = np.round(number[leaf] / LEAF_STEP) * LEAF_STEP + 0.0  # no negative zeros
        tree["split_conditions"] = number.tolist()
        for name in ("base_weights", "loss_changes", "sum_hessian"):
            tree[name] = [0.0] * len(number)
    return model


def compressed(content: bytes) -> bytes:
    """Return ``content`` as an xz file, the same bytes from the same version of liblzma."""
    import lzma

    return lzma.compress(content, lzma.FORMAT_XZ, preset=6)


def decompressed(content: bytes, size: int) -> bytes:
    """Return what an xz file holds, which must be ``size`` bytes; no more is ever unpacked.

    Raises
    ------
    InputError
        When it holds more or less, is damaged, or asks for more memory than ``DECODER_BYTES``.
    """
    import lzma

    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DECODER_BYTES)
    try:
        result = decoder.decompress(content, max_length=size + 1)
    except lzma.LZMAError as error:
        raise refusal("booster", f"the booster cannot be decompressed: {error}") from None
    if len(result) != size or not decoder.eof or decoder.unused_data:
        raise refusal("booster", f"the booster does not decompress to {size} bytes")
    return result
