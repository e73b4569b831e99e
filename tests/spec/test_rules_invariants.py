"""What holds for every pair, legal or not."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from builders import H100, cluster, gpt
from builders import job as make_job
from hypothesis import given
from hypothesis import strategies as st

from predictor.spec import vocabulary
from predictor.spec.resolve import resolve
from predictor.spec.rules import check_strategy, heuristics
from predictor.spec.strategy import Strategy

JOB = make_job(gpt(num_layers=32), cluster=cluster(4, H100), global_batch_size=256)
degree = st.sampled_from([1, 2, 3, 4, 8, 16])
strategies = st.builds(
    Strategy, tp=degree, pp=degree, cp=degree, ep=degree, vpp=st.sampled_from([1, 2, 4]),
    etp=st.none() | degree, dp=st.none() | degree, dp_shard=st.none() | degree,
    micro_batch_size=degree, zero_stage=st.integers(0, 3),
    sequence_parallel=st.none() | st.booleans(), ep_overlap=st.booleans(),
    cp_comm_type=st.sampled_from(get_args(vocabulary.CpCommType)),
    schedule=st.none() | st.sampled_from(get_args(vocabulary.Schedule)),
    recompute=st.sampled_from(get_args(vocabulary.Recompute)),
    precision=st.sampled_from(get_args(vocabulary.Precision)),
    num_layers_first_stage=st.none() | degree, num_layers_last_stage=st.none() | degree)
frameworks = st.sampled_from(get_args(vocabulary.Framework))


@given(strategies, frameworks)
def test_a_pair_without_problems_fills_the_cluster_and_divides(strategy, framework):
    job, strategy, _ = resolve(replace(JOB, framework=framework), strategy)
    if check_strategy(job, strategy):
        return
    assert strategy.tp * strategy.pp * strategy.cp * strategy.dp == job.cluster.num_gpus
    assert job.global_batch_size % (strategy.micro_batch_size * strategy.dp) == 0
    assert job.model.num_attention_heads % strategy.tp == 0
    assert job.seq_len % strategy.cp == 0
    assert strategy.dp * strategy.cp % strategy.dp_shard == 0


@given(strategies, frameworks)
def test_every_problem_can_be_shown(strategy, framework):
    job, strategy, _ = resolve(replace(JOB, framework=framework), strategy)
    for problem in (*check_strategy(job, strategy), *heuristics(job, strategy)):
        assert problem.rule
        assert problem.message
        assert problem.remedy
        assert "None" not in str(problem)


@given(strategies, frameworks)
def test_checking_twice_finds_the_same(strategy, framework):
    job, strategy, _ = resolve(replace(JOB, framework=framework), strategy)
    assert check_strategy(job, strategy) == check_strategy(job, strategy)
