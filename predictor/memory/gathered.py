"""What sharded data parallelism has whole at the same time, and its buffers."""

from __future__ import annotations

import numpy as np

from predictor.lowering.batch import Batch
from predictor.lowering.holdings import Holdings, RankIndex, trained_share
from predictor.lowering.parameters import part_parameters
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import Floats
from predictor.memory.recipes import is_framework, is_wide

LIVE_UNITS = 2.0
"""FSDP units gathered at once: the one that runs and the one prefetched."""
BUCKET_PARAMETERS = 5e8
"""reduce_bucket_size of DeepSpeed's ZeRO optimizers (DeepSpeed config-json), 16 bits each."""


def gathered_bytes(batch: Batch, stages: Stages, ranks: RankIndex, held: Holdings,
                   gradient: Floats) -> Floats:
    """Return shape (ranks,): whole parameters and gradients that FSDP has at once.

    Usually those of the layers in use and, in torchtitan, of the embedding and the output layer,
    which share a unit that stays gathered. torch's pipelines reduce gradients after the last
    micro-batch only, and torchtitan keeps parameters whole until then, too
    (torch/distributed/pipelining/stage.py). ``gradient``: bytes per gradient, shape (ranks,).
    """
    row, strategy = ranks.row, batch.strategy
    element = np.where(is_wide(batch), 4.0, 2.0)[row]
    titan = is_framework(batch, "torchtitan")[row]
    pipelined = titan & (strategy.pp[row] > 1)
    stays = pipelined | (strategy.reshard_after_forward[row] == 0)
    whole = held.dense + held.expert
    unit = _largest_layer(batch)[row]
    root = np.where(titan, _ends(batch, stages, ranks), 0.0)
    parameters = element * np.where(stays, whole, np.minimum(whole, LIVE_UNITS * unit + root))
    summed = np.where(pipelined, whole * gradient, np.minimum(whole, unit + root) * element)
    sharded = (strategy.zero_stage[row] == 3) & (strategy.dp_shard[row] > 1)
    return np.where(sharded, parameters + trained_share(batch)[row] * summed, 0.0)


def bucket_bytes(batch: Batch, ranks: RankIndex, held: Holdings, gradient: Floats) -> Floats:
    """Return shape (ranks,): buffers in which gradients travel.

    DeepSpeed's ZeRO fills one bucket; torch's DistributedDataParallel, which Hugging Face uses
    without FSDP, copies every gradient into buckets of its own (gradient_as_bucket_view is off).
    Megatron-LM reduces the main gradients where they lie.
    """
    row, strategy = ranks.row, batch.strategy
    trained = trained_share(batch)[row] * (held.dense + held.expert)
    zero = is_framework(batch, "deepspeed", "megatron-deepspeed")[row] \
        & (strategy.zero_stage[row] > 0)
    plain = is_framework(batch, "huggingface")[row] & (strategy.zero_stage[row] == 0)
    reduces = (strategy.dp * strategy.cp > 1)[row]
    bucket = np.where(zero, 2.0 * np.minimum(trained, BUCKET_PARAMETERS), 0.0)
    return np.where(reduces, bucket + np.where(plain, trained * gradient, 0.0), 0.0)


def _ends(batch: Batch, stages: Stages, ranks: RankIndex) -> Floats:
    """Shape (ranks,): parameters of the embedding and the output layer."""
    each = part_parameters(batch).dense[stages.row]
    ends = [Part.EMBEDDING, Part.HEAD]
    return ranks.total((each[:, ends] * (stages.counts[:, ends] > 0)).sum(axis=1))


def _largest_layer(batch: Batch) -> Floats:
    """Shape (rows,): parameters of the heaviest layer, the unit that FSDP gathers."""
    parameters = part_parameters(batch)
    each = parameters.dense + parameters.expert
    mixer = each[:, [Part.ATTENTION, Part.MAMBA]].max(axis=1)
    width = np.where(batch.model.num_experts > 0, each[:, Part.MOE], each[:, Part.MLP])
    return np.asarray(mixer + width)
