"""The files of a learned predictor: written by training, opened by a prediction.

A bundle is a folder::

    manifest.json      what it is, learned from what, and the digest of every other file
    <model>.npz        flat trees, training domain and error widths: plain arrays, no pickles
    <model>.ubj.xz     the same trees as an XGBoost booster, for tables of many rows
"""

from __future__ import annotations

from predictor.bundle.format import (
    FORMAT_VERSION,
    Manifest,
    ModelEntry,
    TrainingManifest,
    TrainingSource,
)
from predictor.bundle.read import Bundle, open_bundle
from predictor.bundle.trees import BoostedTrees, forest_of
from predictor.bundle.write import TrainedModel, copy_bundle, write_bundle

__all__ = [
    "FORMAT_VERSION", "BoostedTrees", "Bundle", "Manifest", "ModelEntry", "TrainedModel",
    "TrainingManifest", "TrainingSource", "copy_bundle", "forest_of", "open_bundle",
    "write_bundle",
]
