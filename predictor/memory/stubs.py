"""Weight gradients that exist for autograd's sake only."""

from __future__ import annotations

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.holdings import RankIndex, is_frozen
from predictor.lowering.parameters import part_parameters
from predictor.lowering.parts import NUM_PARTS, Part, Stages
from predictor.lowering.tables import Floats

STUB_BYTES = 2.0
"""Per weight: the gradient has the type of the weight."""
_SAME_SHAPES = (
    (Part.ATTENTION, Part.LOCAL_ATTENTION, Part.CROSS_ATTENTION, Part.ENCODER_ATTENTION),
    (Part.MLP, Part.ENCODER_MLP), (Part.MOE,), (Part.MAMBA,))


def stub_bytes(batch: Batch, stages: Stages, ranks: RankIndex) -> Floats:
    """Return shape (ranks,): empty weight gradients that Transformer Engine keeps.

    Its products add weight gradients to the fp32 main gradients themselves and hand autograd an
    empty tensor in their place, one per shape of weight, kept for good (module/base.py,
    get_dummy_wgrad). So a layer's matrices are there once more, and one expert's.
    """
    weights = _weights(batch)[ranks.row]
    there = np.stack([ranks.most((stages.counts[:, part] > 0).astype(float))
                      for part in range(NUM_PARTS)], axis=1) * weights
    total = np.sum([there[:, parts].max(axis=1) for parts in map(list, _SAME_SHAPES)], axis=0)
    engine = batch.job.implementation == code("implementation", "transformer-engine")
    keeps = engine & ~is_frozen(batch) & (batch.strategy.zero_stage < 3)
    return np.where(keeps[ranks.row], STUB_BYTES * total, 0.0)


def _weights(batch: Batch) -> Floats:
    """Shape (rows, parts): weights of different shapes on one rank."""
    parameters = part_parameters(batch)
    local_experts = np.maximum(1.0, batch.model.num_experts / batch.strategy.ep)
    return np.asarray(parameters.dense + parameters.expert / local_experts[:, None])
