"""The building blocks of a model, and which of them every pipeline stage holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np

from predictor.lowering.batch import Batch
from predictor.lowering.tables import Columns, Ints
from predictor.spec.model import ModelConfig


class Part(IntEnum):
    """A block whose kernels are listed once; a layer is a sum of parts."""

    LAYER = 0
    """Counts layers; has no kernels of its own."""
    ATTENTION = 1
    LOCAL_ATTENTION = 2
    """Attention inside a sliding window."""
    CROSS_ATTENTION = 3
    ENCODER_ATTENTION = 4
    MLP = 5
    ENCODER_MLP = 6
    MOE = 7
    MAMBA = 8
    EMBEDDING = 9
    HEAD = 10
    """Final norm, logits and loss."""
    MTP = 11
    """What a multi-token-prediction block adds to its layer: two norms and a projection."""


NUM_PARTS = len(Part)
ATTENTION_PARTS = (Part.ATTENTION, Part.LOCAL_ATTENTION, Part.CROSS_ATTENTION,
                   Part.ENCODER_ATTENTION)


@dataclass(frozen=True, slots=True)
class Stages(Columns):
    """Every (chunk, rank) of every row, ragged: ``pp * vpp`` entries per row, chunk-major."""

    row: Ints
    """Row of the batch."""
    rank: Ints
    """Pipeline rank that holds the stage."""
    chunk: Ints
    """Virtual chunk of that rank; the global stage is ``chunk * pp + rank``."""
    counts: Ints
    """Shape (stages, parts): how many of each part the stage holds."""


def build_stages(batch: Batch) -> Stages:
    """Split the layers of every row over its stages.

    In this order: an explicit layout; given first and last stage counts; embedding and loss
    counted as layers; a balanced split that differs by at most one layer, first and last lighter.
    """
    strategy = batch.strategy
    num_stages = strategy.pp * strategy.vpp
    row = np.repeat(np.arange(len(batch)), num_stages)
    stage = np.arange(len(row)) - np.repeat(np.cumsum(num_stages) - num_stages, num_stages)
    layers = split_layers(batch, row, stage)
    first_layer = _exclusive_cumsum(layers, row)
    counts = _layer_counts(batch, row, first_layer, layers)
    last = num_stages[row] - 1
    counts[:, Part.EMBEDDING] = stage == 0
    counts[:, Part.HEAD] = np.where(stage == last, 1 + batch.model.mtp_num_layers[row], 0)
    _add_mtp(batch, row, stage == last, counts)
    pp = strategy.pp[row]
    return Stages(row=row, rank=stage % pp, chunk=stage // pp, counts=counts)


def split_layers(batch: Batch, row: Ints, stage: Ints) -> Ints:
    """Return the number of layers of each (row, stage); arguments and result have one shape.

    Multi-token-prediction blocks sit on the last stage and weigh like two layers each there, their
    own and their logits: the layouts of DeepSeek-V3 recipes leave one layer beside the block.
    """
    layers = _by_units(batch, row, stage, 2 * batch.model.mtp_num_layers)
    short = np.zeros(len(batch), dtype=bool)
    short[row[layers < 0]] = True
    if short.any():
        plain = _by_units(batch, row, stage, np.zeros_like(batch.model.mtp_num_layers))
        layers = np.where(short[row], plain, layers)
    layers = _with_given_ends(batch, row, stage, layers)
    for index, layout in enumerate(batch.layouts):
        if layout:
            layers[row == index] = layout
    return layers


def _by_units(batch: Batch, row: Ints, stage: Ints, last_blocks: Ints) -> Ints:
    """Share layers, and what counts as a layer on the first and the last stage."""
    strategy, model = batch.strategy, batch.model
    num_stages = (strategy.pp * strategy.vpp)[row]
    num_layers = (model.num_layers + model.num_encoder_layers)[row]
    first_unit = strategy.account_for_embedding_in_split[row]
    last_unit = strategy.account_for_loss_in_split[row] + last_blocks[row]
    units = _balanced(num_layers + first_unit + last_unit, num_stages, stage)
    layers: Ints = units - first_unit * (stage == 0) - last_unit * (stage == num_stages - 1)
    return layers


def _balanced(units: Ints, parts: Ints, position: Ints) -> Ints:
    """Share ``units`` over ``parts``; the remainder goes to the middle first, then first, last."""
    order = np.where(position == parts - 1, parts - 1,
                     np.where(position == 0, np.maximum(parts - 2, 0), position - 1))
    shared: Ints = units // parts + (order < units % parts)
    return shared


def _with_given_ends(batch: Batch, row: Ints, stage: Ints, layers: Ints) -> Ints:
    """Honour num_layers_first_stage and num_layers_last_stage, which count a rank's layers."""
    strategy = batch.strategy
    first, last = strategy.num_layers_first_stage[row], strategy.num_layers_last_stage[row]
    given = (first > 0) | (last > 0)
    if not given.any():
        return layers
    pp, vpp = strategy.pp[row], strategy.vpp[row]
    rank, chunk = stage % pp, stage // pp
    total = (batch.model.num_layers + batch.model.num_encoder_layers)[row]
    inner = np.maximum(1, pp - (first > 0) - (last > 0))
    position = rank - (first > 0)
    per_rank = np.where(
        (rank == 0) & (first > 0), first,
        np.where((rank == pp - 1) & (last > 0), last,
                 (total - first - last) // inner + (position < (total - first - last) % inner)),
    )
    per_chunk = per_rank // vpp + (chunk < per_rank % vpp)
    return np.where(given, per_chunk, layers)


def _exclusive_cumsum(values: Ints, row: Ints) -> Ints:
    """Sum of the earlier values of the same row."""
    total = np.cumsum(values) - values
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    lengths = np.diff(np.r_[starts, len(row)])
    offset: Ints = total - np.repeat(total[starts], lengths)
    return offset


def _layer_counts(batch: Batch, row: Ints, first: Ints, layers: Ints) -> Ints:
    """Parts of the layers ``first .. first + layers`` of each row."""
    model = batch.model
    keys = np.stack([
        model.num_layers, model.num_encoder_layers, model.sliding_window > 0,
        model.full_attention_interval, model.num_experts > 0, model.moe_num_dense_layers,
        model.moe_layer_interval,
    ], axis=1)
    known: dict[tuple[object, ...], int] = {}
    offsets = np.empty(len(batch), dtype=np.int64)
    tables: list[Ints] = []
    size = 0
    for index, (key, pattern) in enumerate(zip(keys.tolist(), batch.layer_patterns, strict=True)):
        name = (*key, pattern)
        if name not in known:
            table = _cumulative_parts(*name)
            known[name] = size
            tables.append(table)
            size += len(table)
        offsets[index] = known[name]
    cumulative = np.concatenate(tables)
    start = offsets[row] + np.clip(first, 0, None)
    counts: Ints = cumulative[start + layers] - cumulative[start]
    return counts


@lru_cache(maxsize=4096)
def _cumulative_parts(
    num_layers: int, num_encoder: int, windowed: int, full_interval: int, has_experts: int,
    num_dense: int, moe_interval: int, pattern: str,
) -> Ints:
    """Return shape (layers + 1, parts): parts of the first n layers."""
    parts = np.zeros((num_encoder + num_layers + 1, NUM_PARTS), dtype=np.int64)
    for layer in range(num_encoder):
        parts[layer + 1, [Part.LAYER, Part.ENCODER_ATTENTION, Part.ENCODER_MLP]] = 1
    for layer in range(num_layers):
        held = [Part.LAYER]
        if pattern:
            held.append(_PATTERN_PARTS[pattern[layer]])
        else:
            full = not windowed or (full_interval > 0 and layer % full_interval
                                    == full_interval - 1)
            moe = has_experts and layer >= num_dense and (
                (layer - num_dense) % moe_interval == moe_interval - 1)
            held += [Part.ATTENTION if full else Part.LOCAL_ATTENTION,
                     Part.MOE if moe else Part.MLP]
            if num_encoder:
                held.append(Part.CROSS_ATTENTION)
        parts[num_encoder + layer + 1, held] = 1
    return np.cumsum(parts, axis=0)


_PATTERN_PARTS = {"M": Part.MAMBA, "*": Part.ATTENTION, "-": Part.MLP, "E": Part.MOE}


def layer_parts(model: ModelConfig) -> Ints:
    """Return shape (parts,): how many of each part the whole model holds, without its ends."""
    cumulative = _cumulative_parts(
        model.num_layers, model.num_encoder_layers, int(model.sliding_window > 0),
        model.full_attention_interval, int(model.num_experts > 0), model.moe_num_dense_layers,
        model.moe_layer_interval, model.layer_pattern)
    total: Ints = cumulative[-1]
    return total


def _add_mtp(batch: Batch, row: Ints, is_last: Ints, counts: Ints) -> None:
    """Add the multi-token-prediction blocks, each a copy of the model's last kind of layer."""
    blocks = np.where(is_last, batch.model.mtp_num_layers[row], 0)
    if not blocks.any():
        return
    moe = batch.model.num_experts[row] > 0
    counts[:, Part.MTP] += blocks
    counts[:, Part.LAYER] += blocks
    counts[:, Part.ATTENTION] += blocks
    counts[:, Part.MOE] += np.where(moe, blocks, 0)
    counts[:, Part.MLP] += np.where(moe, 0, blocks)
