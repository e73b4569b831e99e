"""What tensor and sequence parallelism divide."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.rules.rule import ALL, Broken, Rule
from predictor.spec.strategy import Strategy


def has_attention(model: ModelConfig) -> bool:
    """Whether any layer attends."""
    return not model.layer_pattern or "*" in model.layer_pattern


def has_dense_mlp(model: ModelConfig) -> bool:
    """Whether any layer has an MLP that is not a mixture of experts."""
    if model.layer_pattern:
        return "-" in model.layer_pattern
    return (model.num_experts == 0 or model.moe_num_dense_layers > 0
            or model.moe_layer_interval > 1 or model.num_encoder_layers > 0)


def heads_divisible_by_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py __post_init__; torchtitan models/common/decoder.py."""
    heads = job.model.num_attention_heads
    if heads % strategy.tp == 0 or not has_attention(job.model):
        return None
    return Broken(f"num_attention_heads {heads} must be a multiple of tp {strategy.tp}",
                  f"choose a tp that divides {heads}", "tp")


def _heads_say_it(model: ModelConfig) -> bool:
    """Whether the rule on heads covers keys and values: each head has its own, or none is split."""
    return model.num_query_groups == model.num_attention_heads or model.kv_lora_rank > 0


def kv_groups_fit_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py: one of the two divides the other (heads are copied)."""
    model, tp = job.model, strategy.tp
    groups = model.num_query_groups or 1
    if groups % tp == 0 or tp % groups == 0 or _heads_say_it(model):
        return None
    return Broken(f"num_query_groups {groups} and tp {tp}: one must divide the other",
                  f"choose a tp that divides {groups} or is a multiple of it", "tp")


def kv_groups_divisible_by_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """torchtitan models/common/decoder.py does not copy key/value heads."""
    groups, tp = job.model.num_query_groups or 1, strategy.tp
    if groups % tp == 0 or _heads_say_it(job.model):
        return None
    return Broken(f"{job.framework} needs num_query_groups {groups} to be a multiple of tp {tp}",
                  f"choose a tp that divides {groups}", "tp")


def ffn_divisible_by_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron tensor_parallel/layers.py divides the inner width of the MLP."""
    width = job.model.ffn_hidden_size or 1
    if width % strategy.tp == 0 or not has_dense_mlp(job.model):
        return None
    return Broken(f"ffn_hidden_size {width} must be a multiple of tp {strategy.tp}",
                  f"choose a tp that divides {width}", "tp")


def expert_ffn_divisible_by_etp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron moe/experts.py divides the inner width of an expert."""
    width, etp = job.model.moe_ffn_hidden_size or 1, strategy.etp or 1
    if job.model.num_experts == 0 or width % etp == 0:
        return None
    return Broken(f"moe_ffn_hidden_size {width} must be a multiple of etp {etp}",
                  f"choose an etp that divides {width}", "etp")


def shared_expert_divisible_by_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Shared experts are split like a dense MLP (Megatron moe/shared_experts.py)."""
    width = job.model.moe_shared_expert_ffn_hidden_size
    if width % strategy.tp == 0:
        return None
    return Broken(f"moe_shared_expert_ffn_hidden_size {width} must be a multiple of tp "
                  f"{strategy.tp}", f"choose a tp that divides {width}", "tp")


def mamba_divisible_by_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron ssm/mamba_mixer.py divides heads and groups."""
    model, tp = job.model, strategy.tp
    if "M" not in model.layer_pattern:
        return None
    if model.mamba_num_heads % tp == 0 and model.mamba_num_groups % tp == 0:
        return None
    return Broken(f"mamba_num_heads {model.mamba_num_heads} and mamba_num_groups "
                  f"{model.mamba_num_groups} must be multiples of tp {tp}",
                  "choose a tp that divides both", "tp")


def sequence_parallel_needs_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron model_parallel_config.py __post_init__."""
    if not strategy.sequence_parallel or strategy.tp > 1:
        return None
    return Broken("sequence_parallel needs tp above 1 and tp is 1",
                  "leave sequence_parallel out or raise tp", "sequence_parallel")


def sequence_divisible_by_tp(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Each tensor-parallel rank keeps an equal share of the tokens (torchtitan trainer.py)."""
    if not strategy.sequence_parallel:
        return None
    part = strategy.tp * strategy.cp
    if job.seq_len % part == 0:
        return None
    return Broken(f"with sequence_parallel, seq_len {job.seq_len} must be a multiple of "
                  f"tp {strategy.tp} x cp {strategy.cp} = {part}",
                  f"choose a multiple of {part}", "seq_len")


def tp_overlap_needs_sequence_parallel(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py: tp_comm_overlap splits what sequence parallelism gathers."""
    if not strategy.tp_comm_overlap or strategy.sequence_parallel or strategy.tp == 1:
        return None
    return Broken("tp_comm_overlap needs sequence_parallel",
                  "turn sequence_parallel on or tp_comm_overlap off", "tp_comm_overlap")


RULES = (
    Rule(heads_divisible_by_tp),
    Rule(kv_groups_fit_tp, ALL - {"torchtitan"}),
    Rule(kv_groups_divisible_by_tp, ALL & {"torchtitan"}),
    Rule(ffn_divisible_by_tp),
    Rule(expert_ffn_divisible_by_etp),
    Rule(shared_expert_divisible_by_tp),
    Rule(mamba_divisible_by_tp),
    Rule(sequence_parallel_needs_tp),
    Rule(sequence_divisible_by_tp),
    Rule(tp_overlap_needs_sequence_parallel, ALL & {"megatron"}),  # NeMo switches it off itself
)
