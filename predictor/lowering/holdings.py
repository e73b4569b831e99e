"""What every pipeline rank holds: the ranks of a batch, and the parameters on each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictor.lowering.batch import Batch, code
from predictor.lowering.parameters import part_parameters
from predictor.lowering.parts import Part, Stages
from predictor.lowering.tables import Floats, Ints


@dataclass(frozen=True, slots=True)
class RankIndex:
    """The pipeline ranks of every row, ragged: ``pp`` entries per row, rank 0 first."""

    row: Ints
    """Shape (ranks,): row of the batch."""
    rank: Ints
    """Shape (ranks,): position in the pipeline."""
    of_stage: Ints
    """Shape (stages,): entry that holds each stage."""
    first_of_row: Ints
    """Shape (rows,): entry of rank 0 of each row."""
    last_of_row: Ints

    @classmethod
    def of(cls, batch: Batch, stages: Stages) -> RankIndex:
        """Return the ranks that ``stages`` lie on."""
        pp = batch.strategy.pp
        first = np.cumsum(pp) - pp
        row = np.repeat(np.arange(len(batch)), pp)
        return cls(row=row, rank=np.arange(len(row)) - first[row],
                   of_stage=first[stages.row] + stages.rank, first_of_row=first,
                   last_of_row=first + pp - 1)

    def total(self, per_stage: Floats) -> Floats:
        """Return shape (ranks,): the sum over the stages of each rank."""
        summed = np.bincount(self.of_stage, weights=per_stage, minlength=len(self.row))
        return np.asarray(summed, dtype=np.float64)

    def most(self, per_stage: Floats) -> Floats:
        """Return shape (ranks,): the largest of the stages of each rank, at least 0."""
        largest = np.zeros(len(self.row))
        np.maximum.at(largest, self.of_stage, per_stage)
        return largest

    def largest_of_row(self, per_rank: Floats) -> Floats:
        """Return shape (rows,): the largest of the ranks of each row."""
        return np.asarray(np.maximum.reduceat(per_rank, self.first_of_row))


@dataclass(frozen=True, slots=True)
class Holdings:
    """Parameters of one GPU of every pipeline rank, trained or frozen, over all its chunks.

    All arrays have shape (ranks,).
    """

    dense: Floats
    """Everything but routed experts."""
    expert: Floats


def held_parameters(batch: Batch, stages: Stages, ranks: RankIndex) -> Holdings:
    """Return the parameters on every rank, before sharded data parallelism divides them."""
    parameters = part_parameters(batch)
    counts = stages.counts.astype(float)
    # Multi-token prediction runs the output layer again with the same weights; on a stage of its
    # own it holds a copy of the embedding, which is as large.
    copies = 1 + batch.model.mtp_num_layers * (batch.strategy.pp > 1)
    counts[:, Part.HEAD] = np.minimum(counts[:, Part.HEAD], copies[stages.row])

    def total(per_part: Floats) -> Floats:
        return ranks.total(np.einsum("sp,sp->s", counts, per_part[stages.row]))

    return Holdings(dense=total(parameters.dense), expert=total(parameters.expert))


def is_frozen(batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the rows whose own matrices are frozen (LoRA)."""
    return np.asarray(batch.job.workload == code("workload", "lora"))


def trained_share(batch: Batch) -> Floats:
    """Return shape (rows,): trained over all parameters: 1, or the share of LoRA's adapters.

    Rank-r adapters on a (n, k) matrix have r (n + k) parameters, about 2 r / hidden of it
    (Hu et al., arXiv 2106.09685, section 4.1).
    """
    adapters = np.minimum(1.0, 2.0 * batch.job.lora_rank / batch.model.hidden_size)
    return np.where(is_frozen(batch), adapters, 1.0)
