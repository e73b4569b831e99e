"""Total parameters of the presets against the counts that their authors publish."""

import pytest

from predictor.catalog import load_cluster, load_model
from predictor.lowering.batch import Batch
from predictor.lowering.parameters import total_parameters
from predictor.lowering.parts import build_stages
from predictor.spec.job import TrainingJob
from predictor.spec.resolve import resolve
from predictor.spec.strategy import Strategy

MEGATRON = "arXiv 2104.04473, table 1"
KORTHIKANTI = "arXiv 2205.05198, table 3"
HUB = "parameter count of the published weights on the Hugging Face hub"

# Name, billions of parameters, relative tolerance, where the count is published.
PUBLISHED = [
    ("gpt-3-125m", 0.125, 0.02, "arXiv 2005.14165, table 2.1"),
    ("gpt-3-350m", 0.356, 0.02, "arXiv 2005.14165, table D.1"),
    ("gpt-3-760m", 0.760, 0.02, "arXiv 2005.14165, table D.1"),
    ("gpt-3-1.3b", 1.320, 0.02, "arXiv 2005.14165, table D.1"),
    ("gpt-3-2.7b", 2.650, 0.02, "arXiv 2005.14165, table D.1"),
    ("gpt-3-6.7b", 6.660, 0.02, "arXiv 2005.14165, table D.1"),
    ("gpt-3-13b", 12.850, 0.02, "arXiv 2005.14165, table D.1"),
    ("gpt-3-175b", 174.600, 0.01, "arXiv 2005.14165, table D.1"),
    ("gpt-2-xl", 1.558, 0.01, HUB),
    ("megatron-1.7b", 1.7, 0.03, MEGATRON),
    ("megatron-3.6b", 3.6, 0.02, MEGATRON),
    ("megatron-7.5b", 7.5, 0.01, MEGATRON),
    ("megatron-18.4b", 18.4, 0.01, MEGATRON),
    ("megatron-39.1b", 39.1, 0.01, MEGATRON),
    ("megatron-76.1b", 76.1, 0.01, MEGATRON),
    ("megatron-145.6b", 145.6, 0.01, MEGATRON),
    ("megatron-310.1b", 310.1, 0.01, MEGATRON),
    ("megatron-530b", 529.6, 0.01, MEGATRON),
    ("megatron-1t", 1008.0, 0.01, MEGATRON),
    ("megatron-22b", 22.0, 0.01, KORTHIKANTI),
    ("megatron-175b", 175.0, 0.01, KORTHIKANTI),
    ("gpt-neox-20b", 20.554, 0.01, "arXiv 2204.06745, table 1: 20,554,567,680"),
    ("bloom-176b", 176.247, 0.01, "arXiv 2211.05100, table 3: 176,247M"),
    ("palm-540b", 540.35, 0.01, "arXiv 2204.02311, table 1"),
    ("llama-7b", 6.7, 0.01, "arXiv 2302.13971, table 2"),
    ("llama-13b", 13.0, 0.01, "arXiv 2302.13971, table 2"),
    ("llama-30b", 32.5, 0.01, "arXiv 2302.13971, table 2"),
    ("llama-65b", 65.2, 0.01, "arXiv 2302.13971, table 2"),
    ("llama-2-7b", 6.738, 0.01, HUB),
    ("llama-2-13b", 13.016, 0.01, HUB),
    ("llama-2-70b", 68.977, 0.01, HUB),
    ("llama-3-8b", 8.030, 0.01, HUB),
    ("llama-3-70b", 70.554, 0.01, HUB),
    ("llama-3.1-8b", 8.030, 0.01, HUB),
    ("llama-3.1-70b", 70.554, 0.01, HUB),
    ("llama-3.1-405b", 405.853, 0.01, HUB),
    ("llama-3.2-1b", 1.236, 0.01, HUB),
    ("llama-3.2-3b", 3.213, 0.01, HUB),
    ("mistral-7b", 7.242, 0.01, HUB),
    ("mixtral-8x7b", 46.703, 0.01, HUB),
    ("mixtral-8x22b", 140.62, 0.01, HUB),
    ("grok-1", 314.0, 0.01, "xai-org/grok-1 README"),
    ("deepseek-v2-lite", 15.706, 0.01, HUB),
    ("deepseek-v2", 235.741, 0.01, HUB),
    ("deepseek-v3", 684.5, 0.01, HUB + ", with its prediction block"),
    ("kimi-k2", 1040.0, 0.02, "arXiv 2507.20534, table 2: 1.04T"),
    ("qwen3-0.6b", 0.596, 0.01, HUB),
    ("qwen3-1.7b", 1.721, 0.01, HUB),
    ("qwen3-4b", 4.022, 0.01, HUB),
    ("qwen3-8b", 8.191, 0.01, HUB),
    ("qwen3-14b", 14.768, 0.01, HUB),
    ("qwen3-32b", 32.762, 0.01, HUB),
    ("qwen3-30b-a3b", 30.532, 0.01, HUB),
    ("qwen3-235b-a22b", 235.094, 0.01, HUB),
    ("gpt-oss-20b", 20.91, 0.01, "arXiv 2508.10925, table 1"),
    ("gpt-oss-120b", 116.83, 0.01, "arXiv 2508.10925, table 1"),
    ("nemotron-4-15b", 15.7, 0.01, "arXiv 2402.16819: 3.2 B embedding, 12.5 B others"),
    ("nemotron-4-340b", 341.0, 0.01, "arXiv 2406.11704: 9.4 B embedding, 331.6 B others"),
    ("nemotron-h-8b", 8.1, 0.01, HUB),
    ("nemotron-3-nano-30b-a3b", 31.6, 0.01, HUB),
    ("nemotron-3-super-120b-a12b", 120.6, 0.03, "technical report, without its prediction block"),
    ("mpt-7b", 6.649, 0.01, HUB),
    ("mpt-30b", 29.958, 0.01, HUB),
    ("bert-large", 0.335, 0.01, HUB),
    ("t5-large", 0.738, 0.01, HUB),
    ("t5-11b", 11.307, 0.01, HUB),
    ("t5-v1.1-xxl", 11.135, 0.01, HUB),
]


def parameters(name: str) -> float:
    """Return the parameters that lowering counts in the preset."""
    job = TrainingJob(model=load_model(name), cluster=load_cluster("dgx-a100-80gb"),
                      seq_len=1024, global_batch_size=8)
    resolved, strategy, _ = resolve(job, Strategy())
    batch = Batch.from_pairs([resolved], [strategy])
    return float(total_parameters(batch, build_stages(batch).counts)[0])


@pytest.mark.parametrize(("name", "billions", "tolerance", "source"), PUBLISHED)
def test_parameters_match_the_published_count(name, billions, tolerance, source):
    assert parameters(name) / 1e9 == pytest.approx(billions, rel=tolerance), source


def test_experts_of_a_mixture_are_counted_apart_from_its_dense_layers():
    model = load_model("deepseek-v3")
    assert (model.num_experts, model.moe_router_topk, model.moe_num_dense_layers) == (256, 8, 3)
