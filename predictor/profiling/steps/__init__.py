"""Training steps of small transformers under every kind of parallelism that torch has itself."""

from __future__ import annotations

import math
import resource
from collections.abc import Mapping, Sequence

from predictor.profiling.measure import Place
from predictor.profiling.point import Cell, Point, Row
from predictor.profiling.ranks import mean_of
from predictor.profiling.steps.plan import StepPlan, problems_of
from predictor.profiling.timers import Timing, time_call

__all__ = ["measure", "problems_of"]

SOURCE = "campaign"


def measure(point: Point, place: Place) -> Sequence[Row]:
    """Return a row of ``steps`` and one of ``memory``.

    The step is forward, backward and optimizer of a whole global batch. Its loss stands in the
    row too: strategies that compute the same have the same.
    """
    from predictor.profiling.steps.training import mean_loss, trainer

    plan = StepPlan.of(point.spec, place.ranks)
    step = trainer(plan, place)
    loss = mean_loss(step(), plan, place)
    timing = time_call(step, place, agree=mean_of(place))
    cells = {"id": point.key, "source": SOURCE, "family": SOURCE, "launch": point.launch,
             **_configuration(plan, place)}
    return ({"table": "steps", **cells, "step_time_s": timing.seconds,
             "step_time_basis": f"median of {timing.n_samples} steps", "loss": loss,
             **_spread(timing)},
            {"table": "memory", **cells, **_memory(place)})


def _spread(timing: Timing) -> Row:
    statistics = timing.cells()
    return {name: statistics[name] for name in ("n_samples", "ci_low_s", "ci_high_s")}


def _configuration(plan: StepPlan, place: Place) -> Mapping[str, Cell]:
    """Return the columns of a steps table that say what was run and on what."""
    import torch

    sizes = plan.sizes
    return {
        "framework": "torchtitan", "framework_version": torch.__version__,
        "implementation": "eager", "gpu": place.gpu,
        "gpus_per_node": min(place.ranks, place.ranks_per_node), "num_gpus": place.ranks,
        "interconnect_intra": place.intra_link, "interconnect_inter": place.inter_link,
        "model_name": f"{sizes.style} of {sizes.num_layers} layers",
        "arch": sizes.style, "num_layers": sizes.num_layers, "hidden": sizes.hidden_size,
        "ffn_hidden": sizes.ffn_hidden_size, "num_heads": sizes.num_attention_heads,
        "num_kv_heads": sizes.groups, "head_dim": sizes.head_dim, "vocab": sizes.vocab_size,
        "num_experts": sizes.num_experts or None, "topk": sizes.moe_router_topk or None,
        "gated_mlp": int(sizes.style != "gpt"), "tied_embeddings": 0,
        "seq_len": sizes.seq_len, "global_batch": plan.global_batch_size,
        "micro_batch": sizes.micro_batch_size, "tp": plan.tp, "sp": int(plan.tp > 1),
        "pp": plan.pp, "vpp": plan.vpp, "schedule": plan.schedule or "none", "cp": 1, "ep": 1,
        "dp": plan.dp, "zero_stage": str(plan.zero_stage), "precision": sizes.dtype,
        "recompute": "none", "flash_attention": "SDPA", "optimizer_offload": "none",
        "workload": "pretrain", "oom": False}


def _memory(place: Place) -> Row:
    """Return the largest peak of any rank: of torch's allocator, or of the process on a CPU."""
    if place.device == "cuda":
        import torch

        kind, peak = "allocated", float(torch.cuda.max_memory_allocated())
    else:
        kind = "process"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    if place.ranks > 1:
        import torch
        import torch.distributed as dist

        cell = torch.tensor([peak], dtype=torch.float64, device=place.device)
        dist.all_reduce(cell, op=dist.ReduceOp.MAX)
        peak = float(cell.item())
    assert math.isfinite(peak)
    return {"mem_kind": kind, "peak_bytes": peak, "scope": "largest rank"}
