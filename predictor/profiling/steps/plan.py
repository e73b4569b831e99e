"""What one measured training step runs, and the rules that its cells must keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from predictor.profiling.point import Row
from predictor.profiling.shape import SIZE_CELLS, Sizes, size_problems, word_or_count
from predictor.spec.errors import Problem

SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b")
CELLS = ("global_batch_size", "zero_stage", "tp", "pp", "vpp", "schedule")
"""Cells of a step beside its model's sizes. ``zero_stage`` 0 is DDP and 3 is FSDP2."""
_WORDS = {"schedule": SCHEDULES}


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A strategy for one model on so many ranks."""

    sizes: Sizes
    global_batch_size: int
    dp: int
    zero_stage: int = 0
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    schedule: str = ""

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a replica in one step."""
        return self.global_batch_size // (self.dp * self.sizes.micro_batch_size)

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.pp * self.vpp

    @classmethod
    def of(cls, spec: Row, ranks: int) -> StepPlan:
        """Return the plan of a specification that was checked."""
        given: dict[str, Any] = {name: cell for name, cell in spec.items() if name in CELLS}
        dp = max(1, ranks // (given.get("tp", 1) * given.get("pp", 1)))
        return cls(Sizes.of(spec), dp=dp, **given)


def problems_of(spec: Row, ranks: int) -> list[Problem]:
    """Return everything that is wrong with the cells of a step's point."""
    known = (*CELLS, *SIZE_CELLS)
    found = [Problem("step-cells", f"a step has no {name}", f"give {', '.join(known)}", name)
             for name in sorted(set(spec) - set(known))]
    found += size_problems(spec, needed=("vocab_size", "global_batch_size"))
    for name in CELLS:
        if name in spec:
            found += word_or_count(name, spec[name], _WORDS)
    if found:
        return found
    small = [name for name in ("global_batch_size", "tp", "pp", "vpp") if spec.get(name, 1) == 0]
    if small or spec["vocab_size"] == 0:
        return [Problem("step-cells", f"{', '.join(small) or 'vocab_size'} is above 0",
                        "correct it", (small or ["vocab_size"])[0])]
    plan = StepPlan.of(spec, ranks)
    rules = (*_degrees(plan, ranks), *_tensor_parallel(plan), *_pipeline(plan))
    return [Problem("step-strategy", message, "change the strategy or the model", where)
            for holds, message, where in rules if not holds]


def _degrees(plan: StepPlan, ranks: int) -> tuple[tuple[bool, str, str], ...]:
    sizes = plan.sizes
    return (
        (plan.dp * plan.tp * plan.pp == ranks,
         f"tp {plan.tp} x pp {plan.pp} does not divide {ranks} ranks", "ranks"),
        (plan.zero_stage in (0, 3), f"zero_stage is 0 (DDP) or 3 (FSDP2) and got "
         f"{plan.zero_stage}", "zero_stage"),
        (plan.zero_stage == 0 or plan.dp > 1, "zero_stage 3 shards over data-parallel ranks and "
         "there is one", "zero_stage"),
        (plan.micro_batches > 0 and plan.micro_batches * plan.dp * sizes.micro_batch_size
         == plan.global_batch_size,
         f"a global_batch_size of {plan.global_batch_size} is no multiple of dp {plan.dp} x "
         f"micro_batch_size {sizes.micro_batch_size}", "global_batch_size"))


def _tensor_parallel(plan: StepPlan) -> tuple[tuple[bool, str, str], ...]:
    sizes, tp = plan.sizes, plan.tp
    if tp == 1:
        return ()
    sides = {"num_attention_heads": sizes.num_attention_heads, "num_query_groups": sizes.groups,
             "ffn_hidden_size": sizes.ffn_hidden_size, "seq_len": sizes.seq_len,
             "vocab_size": sizes.vocab_size}
    return (
        *((side % tp == 0, f"tp {tp} does not divide {name} {side}", "tp")
          for name, side in sides.items()),
        (sizes.style != "moe", "experts are not measured under tensor parallelism", "tp"),
        (plan.dp == 1 or plan.zero_stage == 3,
         "DDP does not take the tensors of tensor parallelism; give zero_stage: 3", "zero_stage"))


def _pipeline(plan: StepPlan) -> tuple[tuple[bool, str, str], ...]:
    if plan.pp == 1:
        return ((plan.vpp == 1 and not plan.schedule, "vpp and schedule need pp above 1", "pp"),)
    interleaved = plan.schedule == "interleaved-1f1b"
    return (
        (bool(plan.schedule), f"a pipeline has a schedule: {', '.join(SCHEDULES)}", "schedule"),
        (interleaved == (plan.vpp > 1), "interleaved-1f1b has vpp above 1 and no other schedule "
         "has", "vpp"),
        (plan.sizes.num_layers % plan.stages == 0, f"{plan.stages} stages do not divide "
         f"{plan.sizes.num_layers} layers", "num_layers"),
        (plan.schedule == "gpipe" or plan.micro_batches >= plan.pp, f"{plan.schedule} needs as "
         f"many micro-batches as stages and has {plan.micro_batches}", "global_batch_size"),
        (not interleaved or plan.micro_batches % plan.pp == 0, f"interleaved-1f1b needs a multiple "
         f"of pp {plan.pp} micro-batches and has {plan.micro_batches}", "global_batch_size"))
