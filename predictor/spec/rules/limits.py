"""What can be written down but not predicted yet: refused, never ignored."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import Broken, Rule
from predictor.spec.strategy import Strategy

MOST_LAYERS = 10_000
MOST_RANKS = 128
MOST_STAGES = 256
"""Several times what anyone has published (126 layers in 128 stages, 64 pipeline ranks). The
schedule is simulated action by action, whose number grows with the square of the stages."""

MOST_OF_MODEL = {
    "hidden_size": 2**20, "ffn_hidden_size": 2**22, "moe_ffn_hidden_size": 2**22,
    "num_attention_heads": 2**14, "head_dim": 2**14, "vocab_size": 2**24, "num_experts": 2**14,
    "moe_shared_expert_ffn_hidden_size": 2**22, "q_lora_rank": 2**20, "kv_lora_rank": 2**20,
    "mtp_num_layers": 2**6,
}
MOST_TOKENS = 2**28
"""Of one micro-batch. Below these bounds no product of sizes leaves 64-bit integers; each is at
least ten times what anyone has published."""


def one_kind_of_gpu(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Prediction takes all nodes to be alike."""
    groups = job.cluster.groups
    if len(groups) == 1:
        return None
    return Broken(f"the cluster has {len(groups)} groups of nodes and only one kind of node can "
                  "be predicted", "give one group", "cluster.groups")


def one_setting_for_all_layers(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Prediction gives every layer the same degrees."""
    if not strategy.layer_overrides:
        return None
    return Broken("layer_overrides cannot be predicted yet", "leave layer_overrides out",
                  "layer_overrides")


def layers_within_reach(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Layers are told apart one by one."""
    layers = job.model.num_layers + job.model.num_encoder_layers
    if layers <= MOST_LAYERS:
        return None
    return Broken(f"the model has {layers} layers and at most {MOST_LAYERS} can be predicted",
                  "give a model with fewer layers", "model.num_layers")


def stages_within_reach(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """See :data:`MOST_STAGES`."""
    stages = strategy.pp * strategy.vpp
    if strategy.pp <= MOST_RANKS and stages <= MOST_STAGES:
        return None
    return Broken(f"pp {strategy.pp} x vpp {strategy.vpp} is {stages} stages; at most {MOST_RANKS} "
                  f"ranks and {MOST_STAGES} stages can be predicted", "lower pp or vpp", "pp")


def sizes_within_reach(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """See :data:`MOST_TOKENS`."""
    model = job.model
    for name, most in MOST_OF_MODEL.items():
        if (getattr(model, name) or 0) > most:
            return Broken(f"{name} {getattr(model, name)} is more than the {most} that can be "
                          "predicted", f"give at most {most}", f"model.{name}")
    return None


def tokens_within_reach(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """See :data:`MOST_TOKENS`."""
    longest = max(job.seq_len, job.encoder_seq_len or 0)
    if strategy.micro_batch_size * longest <= MOST_TOKENS:
        return None
    return Broken(f"a micro-batch of {strategy.micro_batch_size} x {longest} tokens is more than "
                  f"the {MOST_TOKENS} that can be predicted",
                  "lower micro_batch_size or seq_len", "seq_len")


RULES = (
    Rule(one_kind_of_gpu),
    Rule(one_setting_for_all_layers),
    Rule(layers_within_reach),
    Rule(stages_within_reach),
    Rule(sizes_within_reach),
    Rule(tokens_within_reach),
)
