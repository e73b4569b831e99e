"""Micro-batches whose activations every stage holds when its rank holds most."""

from __future__ import annotations

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.parts import Stages
from predictor.lowering.tables import Floats


def held_microbatches(batch: Batch, stages: Stages) -> Floats:
    """Return shape (stages,): micro-batches of the stage in flight at the rank's peak.

    1F1B: pp - rank; GPipe: all; interleaved: Megatron-Core's warm-up of
    (vpp - 1) pp + 2 (pp - rank - 1) + 1 passes, which fill the chunks in turn, pp at a time.
    Zero-bubble schedules put off weight gradients, which need the activations too, so that every
    rank keeps what 1F1B's first does, ZB-2P almost twice as many (arXiv 2401.10241, section 2.2).
    Never more than there are. The closed form of :mod:`predictor.pipeline.in_flight`.
    """
    strategy, row = batch.strategy, stages.row
    pp, vpp, schedule = strategy.pp[row], strategy.vpp[row], strategy.schedule[row]
    count = batch.num_microbatches[row]
    behind = pp - stages.rank
    plain = np.select(
        [schedule == code("schedule", name) for name in ("gpipe", "zb-h1", "zb-1p", "zb-2p")],
        [count, pp, pp, 2 * pp - 1], behind)
    warm = (vpp - 1) * pp + 2 * (behind - 1) + 1
    beyond = np.maximum(warm - vpp * pp, 0)
    filled = np.clip(warm - stages.chunk * pp, 0, pp) + np.where(stages.chunk == 0, beyond, 0)
    held = np.where(vpp > 1, filled, plain)
    return np.asarray(np.minimum(held, count), dtype=float)
