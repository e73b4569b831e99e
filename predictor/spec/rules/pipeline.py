"""What pipelines and their schedules need."""

from __future__ import annotations

from predictor.spec.job import TrainingJob
from predictor.spec.rules.rule import ALL, MEGATRON_CORE, Broken, Rule
from predictor.spec.strategy import Strategy

ZERO_BUBBLE = frozenset({"zb-h1", "zb-1p", "zb-2p"})
SCHEDULES: dict[str, frozenset[str]] = {
    # zero-bubble schedules run in Megatron-LM through its forks (sail-sg, Primus)
    "megatron": ZERO_BUBBLE | {"1f1b", "interleaved-1f1b"},
    "nemo": frozenset({"1f1b", "interleaved-1f1b"}),
    "megatron-deepspeed": frozenset({"1f1b", "interleaved-1f1b"}),
    "torchtitan": frozenset({"gpipe", "1f1b", "interleaved-1f1b"}),
    "deepspeed": frozenset({"1f1b"}),
    "libai": frozenset({"1f1b"}),
    "maxtext": frozenset({"gpipe", "1f1b", "interleaved-1f1b"}),
    "nanotron": frozenset({"gpipe", "1f1b"}),
}
"""Pipeline schedules of each framework; a framework without pipelines is not listed."""


def _layers(job: TrainingJob) -> int:
    return job.model.num_layers + job.model.num_encoder_layers


def schedule_in_framework(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron schedules.py; torch.distributed.pipelining; DeepSpeed runtime/pipe/schedule.py."""
    known = SCHEDULES[job.framework]
    if strategy.pp == 1 or strategy.schedule in known:
        return None
    return Broken(f"{job.framework} has no schedule {strategy.schedule}",
                  f"choose one of {', '.join(sorted(known))}", "schedule")


def chunks_need_interleaving(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Only the interleaved schedule runs several chunks on a rank."""
    if strategy.vpp == 1 or strategy.schedule == "interleaved-1f1b":
        return None
    return Broken(f"vpp {strategy.vpp} needs schedule interleaved-1f1b, not {strategy.schedule}",
                  "leave schedule out or set vpp to 1", "vpp")


def chunks_need_pipeline(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py."""
    if strategy.vpp == 1 or strategy.pp > 1:
        return None
    return Broken(f"vpp {strategy.vpp} needs pp above 1 and pp is 1", "leave vpp out or raise pp",
                  "vpp")


def chunks_on_two_ranks_need_overlap(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py: interleaving with pp 2 needs overlapping sends."""
    if strategy.vpp == 1 or strategy.pp != 2 or strategy.overlap_p2p:
        return None
    return Broken(f"vpp {strategy.vpp} with pp 2 needs overlap_p2p",
                  "turn overlap_p2p on or use a larger pp", "vpp")


def interleaving_fills_pipeline(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron schedules.py: a group of micro-batches is at least as large as the pipeline."""
    micro_batches = _micro_batches(job, strategy)
    if strategy.vpp == 1 or micro_batches >= strategy.pp:
        return None
    return Broken(f"interleaving needs at least pp {strategy.pp} micro-batches and there are "
                  f"{micro_batches}", "raise global_batch_size or lower micro_batch_size", "vpp")


def interleaving_divides_batch(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron-LM up to core 0.8 and its relatives: micro-batches % pp == 0."""
    micro_batches = _micro_batches(job, strategy)
    if strategy.vpp == 1 or micro_batches % strategy.pp == 0:
        return None
    return Broken(f"interleaving in {job.framework} needs a multiple of pp {strategy.pp} "
                  f"micro-batches and there are {micro_batches}",
                  "choose a global_batch_size that is a multiple of "
                  "micro_batch_size x dp x pp", "vpp")


def _micro_batches(job: TrainingJob, strategy: Strategy) -> int:
    return job.global_batch_size // (strategy.micro_batch_size * (strategy.dp or 1))


def stages_hold_layers(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Every stage holds a layer, but the first may hold only the embedding and the last the loss
    (torchtitan pipeline_parallel.py; published 126-layer runs in 128 stages).
    """
    stages = strategy.pp * strategy.vpp
    units = _layers(job) + 2
    if strategy.pipeline_layout or stages <= units:
        return None
    return Broken(f"pp {strategy.pp} x vpp {strategy.vpp} = {stages} stages are more than the "
                  f"{units - 2} layers, embedding and loss to share", "lower pp or vpp", "pp")


def layout_covers_model(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """An explicit layout names every stage and holds every layer once."""
    layout, stages = strategy.pipeline_layout, strategy.pp * strategy.vpp
    if not layout:
        return None
    if len(layout) != stages:
        return Broken(f"pipeline_layout has {len(layout)} entries but pp x vpp is {stages}",
                      f"give {stages} numbers of layers", "pipeline_layout")
    if sum(layout) != _layers(job):
        return Broken(f"pipeline_layout holds {sum(layout)} layers but the model has "
                      f"{_layers(job)}", "make the numbers add up", "pipeline_layout")
    return None


def one_way_to_split(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron training/arguments.py: layout, end counts and accounting exclude each other."""
    ends = strategy.num_layers_first_stage is not None \
        or strategy.num_layers_last_stage is not None
    accounting = strategy.account_for_embedding_in_split or strategy.account_for_loss_in_split
    if bool(strategy.pipeline_layout) + ends + accounting <= 1:
        return None
    return Broken("pipeline_layout, num_layers_first/last_stage and account_for_*_in_split are "
                  "three ways to split layers, and more than one is given", "keep one of them",
                  "pipeline_layout")


def ends_leave_layers(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Given end stages leave at least one layer for every stage between them."""
    first, last = strategy.num_layers_first_stage, strategy.num_layers_last_stage
    if first is None and last is None:
        return None
    inner = strategy.pp - (first is not None) - (last is not None)
    left = _layers(job) - (first or 0) - (last or 0)
    if inner >= 0 and left >= inner and (inner > 0 or left == 0):
        return None
    given = " and ".join(f"num_layers_{end}_stage {count}" for end, count in
                         (("first", first), ("last", last)) if count is not None)
    return Broken(f"{given}: {left} layers are left for {max(0, inner)} other stages",
                  "choose other counts", "num_layers_first_stage")


def inner_stages_alike(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Megatron transformer_config.py: the layers between the ends divide evenly."""
    first, last = strategy.num_layers_first_stage, strategy.num_layers_last_stage
    inner = strategy.pp - (first is not None) - (last is not None)
    left = _layers(job) - (first or 0) - (last or 0)
    if (first is None and last is None) or inner <= 0 or left % inner == 0:
        return None
    return Broken(f"{left} layers do not divide over the {inner} stages between the ends",
                  "choose other end counts or give pipeline_layout", "num_layers_first_stage")


def tied_embeddings_without_pipeline(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """torchtitan models/common/decoder.py."""
    if strategy.pp == 1 or not job.model.tied_embeddings:
        return None
    return Broken(f"{job.framework} has no pipeline (pp {strategy.pp}) for tied embeddings",
                  "choose pp 1 or a model with tied_embeddings false", "pp")


def zero_bubble_without_full_recompute(job: TrainingJob, strategy: Strategy) -> Broken | None:
    """Primus core/projection/config_validation.py: W needs the activations that F kept."""
    if strategy.pp == 1 or strategy.recompute != "full" or strategy.schedule not in ZERO_BUBBLE:
        return None
    return Broken(f"schedule {strategy.schedule} excludes recompute full",
                  "choose recompute none or selective, or schedule 1f1b", "schedule")


_NEW_INTERLEAVING = MEGATRON_CORE | {"maxtext"}
RULES = (
    Rule(schedule_in_framework, ALL & SCHEDULES.keys()),
    Rule(chunks_need_interleaving),
    Rule(chunks_need_pipeline),
    Rule(chunks_on_two_ranks_need_overlap, MEGATRON_CORE),
    Rule(interleaving_fills_pipeline, _NEW_INTERLEAVING),
    Rule(interleaving_divides_batch, ALL - _NEW_INTERLEAVING),
    Rule(stages_hold_layers),
    Rule(layout_covers_model),
    Rule(one_way_to_split),
    Rule(ends_leave_layers),
    Rule(inner_stages_alike, MEGATRON_CORE),
    Rule(tied_embeddings_without_pipeline, ALL & {"torchtitan"}),
    Rule(zero_bubble_without_full_recompute),
)
