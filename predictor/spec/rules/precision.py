"""What a precision needs from the hardware and from the shapes."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import ALL, MEGATRON_CORE, Broken, Rule
from predictor.spec.rules.tensor import has_dense_mlp
from predictor.spec.strategy import Strategy

UNITS = {"tf32": "tf32_flops", "fp16": "fp16_flops", "bf16": "bf16_flops", "fp8": "fp8_flops",
         "mxfp8": "fp4_flops", "nvfp4": "fp4_flops"}
"""Peak that must be above 0. Block-scaled FP8 came into the hardware together with FP4."""

BLOCK = {"fp8": 16, "mxfp8": 32, "nvfp4": 16}
"""Widths must be multiples of this (Transformer Engine, assert_dim_for_fp8_exec and the
scaling-block sizes of the MXFP8 and NVFP4 recipes)."""

WITHOUT_8_BIT = frozenset({"megatron-deepspeed", "deepspeed", "libai"})
"""Frameworks whose matrix products are 16-bit at the least."""


def precision_in_hardware(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """A peak of 0 in a GPU's record means that it has no such units."""
    units = UNITS.get(strategy.precision)
    gpu = job.cluster.gpu
    if units is None or getattr(gpu, units) > 0:
        return None
    return Broken(f"{gpu.name} has no units for {strategy.precision} ({units} is 0)",
                  "choose another precision or another GPU", "precision")


def low_precision_in_framework(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """DeepSpeed and LiBai train in 16 bits."""
    if strategy.precision not in BLOCK:
        return None
    return Broken(f"{job.framework} does not train in {strategy.precision}",
                  "choose bf16 or another framework", "precision")


def low_precision_widths(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """The inner dimension of every quantised matrix product fills whole scaling blocks."""
    block = BLOCK.get(strategy.precision)
    if block is None:
        return None
    for name, width in _widths(job, strategy):
        if width % block:
            return Broken(f"{strategy.precision} needs widths that are multiples of {block}, but "
                          f"{name} is {width}", "choose another tp, or bf16", "precision")
    return None


def _widths(job: TrainingJob, strategy: Strategy) -> list[tuple[str, int]]:
    model, tp = job.model, strategy.tp
    widths = [("hidden_size", model.hidden_size)]
    if not model.layer_pattern or "*" in model.layer_pattern:
        head = model.v_head_dim if model.kv_lora_rank else model.head_dim or 1
        widths.append(("heads / tp x head_dim", model.num_attention_heads // tp * head))
    if has_dense_mlp(model):
        widths.append(("ffn_hidden_size / tp", (model.ffn_hidden_size or 1) // tp))
    if model.num_experts:
        widths.append(("moe_ffn_hidden_size / etp",
                       (model.moe_ffn_hidden_size or 1) // (strategy.etp or 1)))
    return widths


def low_precision_parameters(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py, fp8_param_gather."""
    if not strategy.fp8_param_gather:
        return None
    if strategy.precision not in BLOCK:
        return Broken(f"fp8_param_gather needs an 8-bit precision, not {strategy.precision}",
                      "choose fp8 or leave fp8_param_gather out", "fp8_param_gather")
    if strategy.zero_stage == 0:
        return Broken("fp8_param_gather needs zero_stage 1 or more and it is 0",
                      "choose zero_stage 1 or leave fp8_param_gather out", "fp8_param_gather")
    return None


RULES = (
    Rule(precision_in_hardware),
    Rule(low_precision_in_framework, WITHOUT_8_BIT),
    Rule(low_precision_widths, ALL - WITHOUT_8_BIT),
    Rule(low_precision_parameters, MEGATRON_CORE),
)
