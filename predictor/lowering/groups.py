"""Where the ranks of every process group lie: domains spanned, stride and sharing of adapters.

Ranks are ordered tp (fastest), cp, dp, pp (slowest); the expert grid is etp, ep, expert-dp, pp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import Batch
from predictor.lowering.tables import Columns, Ints


@dataclass(frozen=True, slots=True)
class Group(Columns):
    """One process group per row. All arrays have shape (rows,)."""

    size: Ints
    stride: Ints
    ranks_per_domain: Ints
    domains: Ints
    concurrent: Ints
    """Sibling groups that share the adapters of a domain."""


def _group(batch: Batch, size: Ints, stride: Ints) -> Group:
    domain = batch.ranks_per_domain
    inside = np.clip(domain // np.maximum(stride, 1), 1, np.maximum(size, 1))
    domains = -(-np.maximum(size, 1) // inside)
    return Group(size=size, stride=stride, ranks_per_domain=inside, domains=domains,
                 concurrent=np.maximum(1, domain // inside))


def tensor_group(batch: Batch) -> Group:
    """Ranks that share each matrix."""
    return _group(batch, batch.strategy.tp, np.ones_like(batch.strategy.tp))


def context_group(batch: Batch) -> Group:
    """Ranks that share each sequence."""
    return _group(batch, batch.strategy.cp, batch.strategy.tp)


def gradient_group(batch: Batch) -> Group:
    """Ranks whose dense gradients are summed: data and context parallel together."""
    strategy = batch.strategy
    return _group(batch, strategy.dp * strategy.cp, strategy.tp)


def shard_group(batch: Batch) -> Group:
    """Ranks that optimizer state (or parameters) are sharded over."""
    return _group(batch, batch.strategy.dp_shard, batch.strategy.tp)


def replica_group(batch: Batch) -> Group:
    """Copies of the same shard (HSDP); size 1 when everything is sharded."""
    strategy = batch.strategy
    size = np.maximum(1, strategy.dp * strategy.cp // strategy.dp_shard)
    return _group(batch, size, strategy.tp * strategy.dp_shard)


def expert_group(batch: Batch) -> Group:
    """Ranks that share the experts of a layer."""
    return _group(batch, batch.strategy.ep, batch.strategy.etp)


def expert_tensor_group(batch: Batch) -> Group:
    """Ranks that share the matrices of each expert."""
    return _group(batch, batch.strategy.etp, np.ones_like(batch.strategy.etp))


def expert_gradient_group(batch: Batch) -> Group:
    """Ranks whose expert gradients are summed."""
    strategy = batch.strategy
    grid = strategy.etp * strategy.ep
    size = np.maximum(1, strategy.tp * strategy.cp * strategy.dp // grid)
    return _group(batch, size, grid)


def expert_shard_group(batch: Batch) -> Group:
    """Ranks that the state of each expert is sharded over: its share of ``dp_shard``."""
    strategy = batch.strategy
    grid = strategy.etp * strategy.ep
    size = np.maximum(1, strategy.dp_shard * strategy.tp // grid)
    return _group(batch, np.minimum(size, expert_gradient_group(batch).size), grid)


def expert_replica_group(batch: Batch) -> Group:
    """Copies of the same shard of an expert; size 1 when everything is sharded."""
    shards = expert_shard_group(batch)
    size = np.maximum(1, expert_gradient_group(batch).size // shards.size)
    return _group(batch, size, shards.stride * shards.size)


def pipeline_group(batch: Batch) -> Group:
    """Ranks of one pipeline; neighbours are ``stride`` apart."""
    strategy = batch.strategy
    return _group(batch, strategy.pp, strategy.tp * strategy.cp * strategy.dp)
