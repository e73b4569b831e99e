"""Token counts and widths that every part of a layer shares, per micro-batch and rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.groups import Group, context_group, tensor_group
from predictor.lowering.tables import Floats


@dataclass(frozen=True, slots=True)
class Shapes:
    """All arrays have shape (rows,)."""

    samples: Floats
    tokens: Floats
    """Tokens of one context-parallel rank."""
    norm_tokens: Floats
    """Tokens that norms and residuals see: divided by tp with sequence parallelism."""
    local_len: Floats
    """Tokens of one sample on one context-parallel rank."""
    seq_len: Floats
    hidden: Floats
    tp: Floats
    sequence_parallel: Floats
    """1 where sequence parallelism is on."""
    tensor: Group
    context: Group

    @classmethod
    def of(cls, batch: Batch, *, encoder: bool = False) -> Shapes:
        """Return the shapes of the batch, of the encoder's sequence when ``encoder``."""
        strategy = batch.strategy
        seq_len = batch.job.seq_len.astype(float)
        if encoder:
            given = batch.job.encoder_seq_len
            seq_len = np.where(given > 0, given, seq_len)
        samples = strategy.micro_batch_size.astype(float)
        local_len = np.maximum(1.0, np.floor(seq_len / strategy.cp))
        tokens = samples * local_len
        sharded = (strategy.sequence_parallel > 0) & (strategy.tp > 1)
        return cls(
            samples=samples, tokens=tokens,
            norm_tokens=np.where(sharded, tokens / strategy.tp, tokens),
            local_len=local_len, seq_len=seq_len, hidden=batch.model.hidden_size.astype(float),
            tp=strategy.tp.astype(float), sequence_parallel=sharded.astype(float),
            tensor=tensor_group(batch), context=context_group(batch))


def local_heads(batch: Batch) -> Floats:
    """Attention heads of one tensor-parallel rank, shape (rows,)."""
    return np.maximum(1.0, batch.model.num_attention_heads / batch.strategy.tp)


def local_groups(batch: Batch) -> Floats:
    """Key/value heads of one tensor-parallel rank, copied where there are fewer than ranks."""
    return np.maximum(1.0, batch.model.num_query_groups / batch.strategy.tp)


def causal_share(queries: Floats, keys: Floats, window: Floats, causal: Floats) -> Floats:
    """Share of a (queries, keys) score matrix that is computed.

    A causal query sees half of the keys on average, at most ``window`` (0: no window).
    """
    reach = np.where(window > 0, np.minimum(window, keys), keys)
    windowed = reach / keys * (1 - reach / (2 * keys))
    both_sides = np.minimum(1.0, 2 * reach / keys) if np.any(window > 0) else 1.0
    share: Floats = np.where(causal > 0, np.where(window > 0, windowed, 0.5),
                             np.where(window > 0, both_sides, 1.0))
    return np.maximum(share, 1.0 / np.maximum(queries, 1.0))


def is_word(batch_column: np.ndarray, field: str, *words: str) -> np.ndarray:
    """Return a mask of the rows whose ``field`` is one of ``words``."""
    return np.isin(batch_column, [code(field, word) for word in words])
