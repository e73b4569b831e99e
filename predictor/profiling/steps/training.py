"""Builds a model under a strategy and the call that trains it by one step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from predictor.profiling.measure import Place
from predictor.profiling.models import Transformer, loss_of
from predictor.profiling.steps.parallel import autocast, mesh_of, replicate, split_tensors
from predictor.profiling.steps.plan import StepPlan

Step = Callable[[], Tensor]
LEARNING_RATE = 1e-4


def trainer(plan: StepPlan, place: Place) -> Step:
    """Return a call that trains by one step and returns this rank's loss (:func:`mean_loss`).

    Every rank calls this at the same time. The model has the same weights and the same tokens
    under every strategy.
    """
    mesh = mesh_of(plan, place)
    stages = [_stage(plan, place, mesh, index) for index in _own_stages(plan, mesh)]
    optimizer = torch.optim.AdamW([one for stage in stages for one in stage.parameters()],
                                  lr=LEARNING_RATE, fused=True)
    tokens = _tokens(plan, place, mesh)
    run = _pipelined(plan, place, mesh, stages) if plan.pp > 1 else _accumulated(plan, stages[0])

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with autocast(plan, place), _vocabulary_parallel(plan):
            loss = run(tokens)
        optimizer.step()
        return loss

    return step


def mean_loss(loss: Tensor, plan: StepPlan, place: Place) -> float:
    """Return the mean over the global batch; only ranks of the last stage have a loss above 0."""
    mean = loss.double() / (plan.dp * plan.tp)
    if place.ranks > 1:
        import torch.distributed as dist

        dist.all_reduce(mean)
    return float(mean.item())


def _own_stages(plan: StepPlan, mesh: Any) -> Sequence[int]:
    """Return the stages of this rank: every pp-th (arXiv 2104.04473, section 2.2)."""
    first = mesh.get_local_rank("pp") if plan.pp > 1 else 0
    return range(first, plan.stages, plan.pp)


def _stage(plan: StepPlan, place: Place, mesh: Any, index: int) -> nn.Module:
    per_stage = plan.sizes.num_layers // plan.stages
    stage: nn.Module = Transformer(plan.sizes, index * per_stage, (index + 1) * per_stage)
    stage = stage.to(place.device)  # weights stay in fp32 whatever the products compute in
    if plan.tp > 1:
        split_tensors(stage, mesh["tp"])
    return replicate(stage, plan, mesh["dp"]) if plan.dp > 1 else stage


def _vocabulary_parallel(plan: StepPlan) -> Any:
    if plan.tp == 1:
        return contextlib.nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel

    return loss_parallel()


def _tokens(plan: StepPlan, place: Place, mesh: Any) -> Tensor:
    """Return this replica's share of the global batch, (samples, seq)."""
    source = torch.Generator().manual_seed(0)
    whole = torch.randint(plan.sizes.vocab_size, (plan.global_batch_size, plan.sizes.seq_len),
                          generator=source)
    replica = mesh.get_local_rank("dp") if plan.dp > 1 else 0
    return whole.chunk(plan.dp)[replica].to(place.device)


def _accumulated(plan: StepPlan, model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return forward and backward of all micro-batches, one after the other.

    DDP reduces once, after the last; FSDP2 after each, as torchtitan leaves it.
    """

    def run(tokens: Tensor) -> Tensor:
        total = torch.zeros((), device=tokens.device)  # on the device: the host runs ahead
        parts = tokens.split(plan.sizes.micro_batch_size)
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            with _unsynchronised(model, quiet=not last):
                loss = loss_of(model(part), part) / len(parts)
                loss.backward()
            total += _local(loss.detach())
        return total

    return run


@contextlib.contextmanager
def _unsynchronised(model: nn.Module, *, quiet: bool) -> Iterator[None]:
    if quiet and hasattr(model, "no_sync"):
        with model.no_sync():
            yield
    else:
        yield


def _local(loss: Tensor) -> Tensor:
    full = getattr(loss, "full_tensor", None)
    return full() if full else loss


def _pipelined(plan: StepPlan, place: Place, mesh: Any, modules: Sequence[nn.Module]
               ) -> Callable[[Tensor], Tensor]:
    """Return forward and backward of all micro-batches through the pipeline."""
    from torch.distributed import pipelining

    group, rank = mesh["pp"].get_group(), mesh.get_local_rank("pp")
    stages = [pipelining.PipelineStage(module, index, plan.stages, torch.device(place.device),
                                       group=group)
              for module, index in zip(modules, _own_stages(plan, mesh), strict=True)]
    kinds = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B,
             "interleaved-1f1b": pipelining.ScheduleInterleaved1F1B}
    schedule: Any = kinds[plan.schedule](
        stages if plan.vpp > 1 else stages[0],
        n_microbatches=plan.micro_batches, loss_fn=loss_of)

    def run(tokens: Tensor) -> Tensor:
        losses: list[Tensor] = []
        given = (tokens,) if rank == 0 else ()
        wanted = {"target": tokens, "losses": losses} if rank == plan.pp - 1 else {}
        schedule.step(*given, **wanted)
        own = torch.zeros((), device=tokens.device)
        return sum((_local(one.detach()) for one in losses), own) / plan.micro_batches

    return run
