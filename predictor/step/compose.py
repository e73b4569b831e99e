"""One training step from its pieces: stages, links, pipeline, data parallelism, optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from predictor.lowering.batch import WORDS, Batch, code
from predictor.lowering.groups import pipeline_group, tensor_group
from predictor.lowering.lower import Lowered, lower
from predictor.lowering.parts import Stages, build_stages
from predictor.lowering.tables import (
    CPU, CollectiveKind, CollectiveTable, Floats, GpuTable, KernelTable, NetworkTable,
)
from predictor.pipeline.batched import pipeline_times
from predictor.step.calibration import CoefficientColumns
from predictor.step.data_parallel import (
    DataParallelTimes, Ranks, build_ranks, collectives_of, data_parallel_times, optimizer_table,
)
from predictor.step.stage_times import CAUSES, StageTimes, stage_times
from predictor.timing.overlap import exposed_s

BREAKDOWN = ("compute_s", "tp_s", "cp_s", "ep_s", "pp_s", "dp_s", "bubble_s", "optimizer_s",
             "overhead_s")
STEP_HOST_S = 2e-3
"""Host work once per step: data loading hand-over, schedule, logging, a device synchronisation."""


class Timer(Protocol):
    """Seconds for tables of operations: the analytic model, or one that was trained."""

    @property
    def provenance(self) -> str:
        """Name of the model behind the seconds."""
        ...

    def kernels(self, table: KernelTable, gpus: GpuTable) -> Floats:
        """Return the device seconds of every row."""
        ...

    def collectives(self, table: CollectiveTable, networks: NetworkTable) -> Floats:
        """Return the seconds of every row."""
        ...


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of every row of a batch. Arrays have shape (rows,) unless said otherwise."""

    step_time_s: Floats
    breakdown: dict[str, Floats]
    """Exposed parts by :data:`BREAKDOWN`; they sum to ``step_time_s``."""
    stages: Stages
    ranks: Ranks
    lowered: Lowered
    per_stage: StageTimes
    work_s: Floats
    """Shape (stages, 3): what the pipeline runs for one micro-batch: forward, backward and, in
    zero-bubble schedules, weight gradients; exposed communication included."""
    link_s: Floats
    """One hop between neighbouring ranks."""
    end_s: Floats
    """Shape (ranks,): when each rank ends its last backward."""
    shared_s: Floats
    """Shape (ranks, 2): exposed data-parallel communication, then the optimizer."""


def time_steps(
    batch: Batch, timer: Timer, coefficients: CoefficientColumns | None = None
) -> StepTimes:
    """Return the step time of every row, corrected by what was measured on its machine."""
    own = CoefficientColumns.of(batch, (), None) if coefficients is None else coefficients
    stages = build_stages(batch)
    ranks = build_ranks(batch, stages)
    lowered = lower(batch)
    kernel_s = timer.kernels(lowered.kernels, batch.gpus)
    collective_s = timer.collectives(lowered.collectives, batch.networks)
    per_stage = stage_times(batch, stages, lowered, own, kernel_s=kernel_s,
                            collective_s=collective_s)
    shared = data_parallel(batch, ranks, own, timer)
    return _Composer(batch, stages, ranks, lowered, per_stage, shared, own, timer).compose()


def data_parallel(
    batch: Batch, ranks: Ranks, coefficients: CoefficientColumns, timer: Timer
) -> DataParallelTimes:
    """Return what every rank spends on data parallelism and the optimizer."""
    tables = collectives_of(batch, ranks)
    joined = CollectiveTable(*[
        np.concatenate([getattr(table, name) for table in tables])
        for name in CollectiveTable.__dataclass_fields__])
    seconds = np.split(timer.collectives(joined, batch.networks), len(tables))
    optimizer_s = timer.kernels(optimizer_table(batch, ranks), batch.gpus)
    return data_parallel_times(batch, ranks, coefficients, seconds, optimizer_s)


@dataclass(frozen=True, slots=True)
class _Composer:
    batch: Batch
    stages: Stages
    ranks: Ranks
    lowered: Lowered
    per_stage: StageTimes
    shared: DataParallelTimes
    coefficients: CoefficientColumns
    timer: Timer

    def compose(self) -> StepTimes:
        batch, ranks, stages = self.batch, self.ranks, self.stages
        forward, backward, weight = self._durations()
        link_s = self._links()
        work_s = self._split(forward.sum(axis=1), backward.sum(axis=1), weight.sum(axis=1))
        end_s = self._pipeline(work_s, link_s)
        dp_s = self._exposed_data_parallel(forward, backward, weight)
        finish = end_s + dp_s + self.shared.optimizer_s
        order = np.lexsort((finish, ranks.row))
        critical = order[np.cumsum(batch.strategy.pp) - 1]
        host_s = np.where(batch.gpus.generation[batch.device] == CPU, 0.0, STEP_HOST_S)
        step = finish[critical] + host_s
        busy = self._busy(forward + backward + weight)[critical]
        waiting = np.maximum(end_s[critical] - busy.sum(axis=1), 0.0)
        hops = 2.0 * batch.num_microbatches * batch.strategy.vpp * link_s
        linked = np.minimum(np.where(batch.strategy.pp > 1, hops, 0.0), waiting)
        columns = dict(zip((*CAUSES, "fsdp"), busy.T, strict=True))
        breakdown = {
            "compute_s": columns["compute"], "tp_s": columns["tp"], "cp_s": columns["cp"],
            "ep_s": columns["ep"], "pp_s": linked, "dp_s": dp_s[critical] + columns["fsdp"],
            "bubble_s": waiting - linked, "optimizer_s": self.shared.optimizer_s[critical],
            "overhead_s": columns["overhead"] + host_s}
        total = sum(breakdown.values())
        breakdown["overhead_s"] = breakdown["overhead_s"] + (step - total)
        shared_s = np.column_stack([dp_s, self.shared.optimizer_s])
        return StepTimes(step, breakdown, stages, ranks, self.lowered, self.per_stage, work_s,
                         link_s, end_s, shared_s)

    def _durations(self) -> tuple[Floats, Floats, Floats]:
        """Shape (stages, causes) with what FSDP adds to every micro-batch as a cause."""
        rank = self.ranks.index.of_stage
        vpp = self.batch.strategy.vpp[self.stages.row]
        strategy, row = self.batch.strategy, self.stages.row
        backward_window = self.per_stage.backward_s + self.per_stage.weight_s
        passes = (
            (self.per_stage.forward_s, self.per_stage.forward_s, self.shared.fsdp_forward_s,
             strategy.overlap_param_gather[row]),
            (self.per_stage.backward_s, backward_window, self.shared.fsdp_backward_gather_s,
             strategy.overlap_param_gather[row]),
            (np.zeros((len(row), 0)), backward_window, self.shared.fsdp_reduce_s,
             strategy.overlap_grad_reduce[row]))
        out = []
        for times, window, communication, overlaps in passes:
            per_stage = communication[rank] / vpp
            hidden = exposed_s(window.sum(axis=1), per_stage,
                               self.coefficients.overlap_slowdown[row])
            out.append(np.column_stack([times, np.where(overlaps > 0, hidden, per_stage)]))
        out[1][:, -1] += out[2][:, -1]
        weight = np.column_stack([self.per_stage.weight_s, np.zeros(len(self.stages))])
        return out[0], out[1], weight

    def _links(self) -> Floats:
        """Seconds of one hop between neighbouring ranks, the mean over the hops of a pipeline.

        With sequence parallelism each tensor-parallel rank sends its share of the sequence;
        DeepSpeed's pipeline engine also splits the message, and gathers it where it arrives.
        """
        batch = self.batch
        strategy, group, tensor = batch.strategy, pipeline_group(batch), tensor_group(batch)
        splits = (batch.job.framework == code("framework", "megatron-deepspeed")) \
            & (strategy.tp > 1) & (strategy.sequence_parallel == 0)
        wide = np.isin(strategy.precision, [code("precision", "fp32"), code("precision", "tf32")])
        message = np.where(wide, 4.0, 2.0) * batch.tokens * batch.model.hidden_size
        shared = (strategy.sequence_parallel > 0) | splits
        size = message / np.where(shared, strategy.tp, 1)
        ones = np.ones(len(batch), dtype=np.int64)
        pairs = np.maximum(1, np.minimum(batch.ranks_per_domain, group.stride))
        crossing = np.where(strategy.pp > 1, (group.domains - 1) / np.maximum(strategy.pp - 1, 1),
                            0.0)

        def hop_s(inside: bool) -> Floats:
            return self.timer.collectives(CollectiveTable(
                kind=ones * int(CollectiveKind.SEND_RECV), network=batch.network, bytes=size,
                group_size=2 * ones, ranks_per_domain=ones * (2 if inside else 1),
                domains=ones * (1 if inside else 2), stride=group.stride, concurrent=pairs),
                batch.networks)

        gather = CollectiveTable(
            kind=ones * int(CollectiveKind.ALL_GATHER), network=batch.network,
            bytes=np.where(splits, message, 0.0), group_size=tensor.size,
            ranks_per_domain=tensor.ranks_per_domain, domains=tensor.domains,
            stride=tensor.stride, concurrent=tensor.concurrent)
        gather_s = self.timer.collectives(gather, batch.networks)
        return np.asarray((1 - crossing) * hop_s(True) + crossing * hop_s(False) + gather_s)

    def _pipeline(self, work_s: Floats, link_s: Floats) -> Floats:
        """Return shape (ranks,): when each rank ends its last backward."""
        batch, strategy = self.batch, self.batch.strategy
        end_s = np.empty(len(self.ranks.row))
        first_stage = np.cumsum(strategy.pp * strategy.vpp) - strategy.pp * strategy.vpp
        key = (strategy.schedule * 100_000 + strategy.pp) * 1_000 + strategy.vpp
        for value in np.unique(key):
            rows = np.flatnonzero(key == value)
            pp, vpp = int(strategy.pp[rows[0]]), int(strategy.vpp[rows[0]])
            name = WORDS["schedule"][int(strategy.schedule[rows[0]])]
            at = first_stage[rows][:, None] + np.arange(pp * vpp)
            work = work_s[at]
            times = pipeline_times(
                name, pp, vpp, batch.num_microbatches[rows], work[..., 0], work[..., 1],
                work[..., 2], link_s[rows], strategy.overlap_p2p[rows] == 0)
            end_s[self.ranks.index.first_of_row[rows][:, None] + np.arange(pp)] = times.end_s
        return end_s

    def _split(self, forward: Floats, backward: Floats, weight: Floats) -> Floats:
        """Shape (stages, 3). Only zero-bubble schedules run weight gradients apart from input
        gradients.
        """
        names = np.array(WORDS["schedule"])[self.batch.strategy.schedule[self.stages.row]]
        apart = np.char.startswith(names, "zb-")
        return np.column_stack([forward, np.where(apart, backward, backward + weight),
                                np.where(apart, weight, 0.0)])

    def _busy(self, per_microbatch: Floats) -> Floats:
        """Shape (ranks, causes): work of a whole step."""
        busy = np.column_stack([self.ranks.index.total(column) for column in per_microbatch.T])
        return np.asarray(busy * self.batch.num_microbatches[self.ranks.row][:, None])

    def _exposed_data_parallel(self, forward: Floats, backward: Floats, weight: Floats) -> Floats:
        """Shape (ranks,): what is left of reduction and gathering after hiding.

        Buckets reduce behind the last micro-batch's backward; gathered parameters arrive behind
        the next step's first forward.
        """
        strategy, row = self.batch.strategy, self.ranks.row
        slowdown = self.coefficients.overlap_slowdown[row]
        behind = self.ranks.index.total((backward + weight).sum(axis=1))
        ahead = self.ranks.index.total(forward.sum(axis=1))
        reduce_s = np.where(strategy.overlap_grad_reduce[row] > 0,
                            exposed_s(behind, self.shared.reduce_s, slowdown), self.shared.reduce_s)
        gather_s = np.where(strategy.overlap_param_gather[row] > 0,
                            exposed_s(ahead, self.shared.gather_s, slowdown), self.shared.gather_s)
        return np.asarray(reduce_s + gather_s + self.shared.tied_s)
