"""What recomputation and offloading exclude."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.rules.rule import MEGATRON_CORE, Broken, Rule
from predictor.spec.rules.tensor import has_dense_mlp
from predictor.spec.strategy import Strategy


def recompute_layers_need_full(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py: a number of layers goes with granularity full only."""
    if strategy.recompute_num_layers is None or strategy.recompute == "full":
        return None
    return Broken(f"recompute_num_layers needs recompute full, not {strategy.recompute}",
                  "choose recompute full or leave recompute_num_layers out",
                  "recompute_num_layers")


def recompute_layers_within_model(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """No rank can recompute more layers than the model has."""
    layers = job.model.num_layers + job.model.num_encoder_layers
    if (strategy.recompute_num_layers or 0) <= layers:
        return None
    return Broken(f"recompute_num_layers {strategy.recompute_num_layers} is more than the "
                  f"{layers} layers of the model", f"choose at most {layers}",
                  "recompute_num_layers")


def recompute_modules_need_selective(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py."""
    if not strategy.recompute_modules or strategy.recompute == "selective":
        return None
    return Broken(f"recompute_modules needs recompute selective, not {strategy.recompute}",
                  "choose recompute selective or leave recompute_modules out",
                  "recompute_modules")


def recompute_modules_in_model(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py: a module must exist to be recomputed."""
    for module in strategy.recompute_modules:
        if not _has_module(job.model, module):
            return Broken(f"recompute_modules names {module}, which the model does not have",
                          f"leave {module} out", "recompute_modules")
    return None


def _has_module(model: ModelConfig, module: str) -> bool:
    if module in ("moe", "moe_act"):
        return model.num_experts > 0
    if module == "shared_experts":
        return model.moe_shared_expert_ffn_hidden_size > 0
    if module == "mla_up_proj":
        return model.kv_lora_rank > 0
    if module == "mlp":
        return has_dense_mlp(model)
    return True


def activation_offload_alone(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py: offloaded layers are not recomputed as well."""
    if strategy.activation_offload == 0 or strategy.recompute != "full":
        return None
    return Broken("activation_offload excludes recompute full",
                  "choose recompute none or leave activation_offload out", "activation_offload")


RULES = (
    Rule(recompute_layers_need_full),
    Rule(recompute_layers_within_model),
    Rule(recompute_modules_need_selective),
    Rule(recompute_modules_in_model),
    Rule(activation_offload_alone, MEGATRON_CORE),
)
