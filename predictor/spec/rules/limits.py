"""What can be written down but not predicted yet: refused, never ignored."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import Broken, Rule
from predictor.spec.strategy import Strategy


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


RULES = (Rule(one_kind_of_gpu), Rule(one_setting_for_all_layers))
