"""Activations that micro-batches in flight keep, and what one layer or the loss needs on top."""

from __future__ import annotations

import numpy as np

from predictor.lowering.activations import PartActivations
from predictor.lowering.batch import Batch, code
from predictor.lowering.holdings import RankIndex
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import Floats

_ENDS = [Part.EMBEDDING, Part.HEAD]


def live_activations(batch: Batch, stages: Stages, ranks: RankIndex, parts: PartActivations,
                     held: Floats) -> tuple[Floats, Floats]:
    """Return what is kept from forward to backward, and the working memory; shape (ranks,).

    ``held``: micro-batches in flight of every stage at its rank's peak.
    """
    counts, row = stages.counts.astype(float), stages.row
    share = _recomputed_share(batch, stages)
    saved = np.einsum("sp,sp->s", counts, parts.saved[row])
    head = counts[:, Part.HEAD] > 0
    of_ends = np.einsum("sp,sp->s", counts[:, _ENDS], parts.saved[row][:, _ENDS])
    inputs = counts[:, Part.LAYER] * parts.stream[row]
    kept = of_ends + (1 - share) * (saved - of_ends) + share * inputs
    # The last stage runs backward right after forward: its loss belongs to one micro-batch.
    of_head = head * parts.saved[row, Part.HEAD]
    loss = of_head + head * parts.working[row, Part.HEAD]
    return (ranks.total((kept - of_head) * held),
            ranks.most(np.maximum(loss, _layer_working(counts, parts, row, share))))


def _recomputed_share(batch: Batch, stages: Stages) -> Floats:
    """Shape (stages,): share of the layers that keep their input only (full recomputation)."""
    strategy, row = batch.strategy, stages.row
    layers = np.maximum(stages.counts[:, Part.LAYER].astype(float), 1.0)
    limit = strategy.recompute_num_layers[row]
    share = np.where(limit > 0, np.minimum(1.0, limit / layers), 1.0)
    return np.asarray(share * (strategy.recompute[row] == code("recompute", "full")))


def _layer_working(counts: Floats, parts: PartActivations, row: np.ndarray,
                   share: Floats) -> Floats:
    """Shape (stages,): what a layer computes again, and its gradients, one half at a time."""
    again = np.where(share[:, None] > 0, parts.whole[row], parts.repeated[row])
    there = counts > 0
    mixer, feed = [], []
    for each in (again, parts.working[row]):
        found = there * each
        mixer.append(found[:, [Part.ATTENTION, Part.LOCAL_ATTENTION, Part.MAMBA]].max(axis=1))
        feed.append(found[:, [Part.MLP, Part.MOE]].max(axis=1))
    return np.asarray(mixer[0] + feed[0] + np.maximum(mixer[1], feed[1]))
