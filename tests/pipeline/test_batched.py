"""The batched recurrence equals the simulator, for any durations, and is fast."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictor.pipeline import batched
from predictor.pipeline.batched import pipeline_times
from predictor.pipeline.registry import SCHEDULES
from predictor.pipeline.simulator import simulated

SLACK = float(os.environ.get("PREDICT_TIME_SLACK", "3"))
NAMES = tuple(SCHEDULES)


def _agree(name, pp, vpp, counts, work_s, link_s, blocking):
    """work_s: (strategies, stages, 3)."""
    times = pipeline_times(name, pp, vpp, np.array(counts), *np.moveaxis(work_s, 2, 0), link_s,
                           blocking)
    for row, count in enumerate(counts):
        one = simulated(name, pp, vpp, count, work_s[row], float(link_s[row]),
                        blocking=bool(blocking[row]))
        assert times.makespan_s[row] == pytest.approx(one.makespan_s, rel=1e-9)
        np.testing.assert_allclose(times.end_s[row], one.end_s[:, -1], rtol=1e-9)
        np.testing.assert_allclose(times.start_s[row], one.start_s[:, 0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(times.busy_s[row], (one.end_s - one.start_s).sum(axis=1),
                                   rtol=1e-9)


def _random(name, stages, rows, seed, *, choices=None):
    random = np.random.default_rng(seed)
    shape = (rows, stages, 3)
    work_s = random.choice(choices, shape) if choices else random.uniform(0.2, 2.0, shape)
    work_s[..., 2] *= SCHEDULES[name].splits_weight
    link_s = random.choice([0.0, 0.1, 0.7], rows) if choices else random.uniform(0, 1, rows)
    return work_s, link_s, random.random(rows) < 0.5


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), pp=st.integers(1, 6), vpp=st.integers(1, 3),
       counts=st.lists(st.integers(1, 60), min_size=1, max_size=4), seed=st.integers(0, 2**32 - 1),
       choices=st.sampled_from([None, [1.0, 2.0], [1.0, 1.0001, 1.5], [0.0, 1.0]]))
def test_equals_the_simulator(name, pp, vpp, counts, seed, choices):
    vpp = vpp if name in ("interleaved-1f1b", "gpipe") else 1
    _agree(name, pp, vpp, counts, *_random(name, pp * vpp, len(counts), seed, choices=choices))


@pytest.mark.parametrize(("name", "pp", "vpp", "count"), [
    *[(name, 4, 1, 1023) for name in NAMES], ("interleaved-1f1b", 4, 2, 512),
    ("interleaved-1f1b", 4, 3, 402), ("1f1b", 16, 1, 300), ("gpipe", 3, 2, 300)])
@pytest.mark.parametrize("choices", [None, [1.0], [1.0, 1.00001]])
def test_long_steps_equal_the_simulator(name, pp, vpp, count, choices):
    _agree(name, pp, vpp, [count] * 3, *_random(name, pp * vpp, 3, 7, choices=choices))


def test_a_late_bottleneck_is_not_missed():
    """The middle stage is slower by so little that it decides only after hundreds of rounds."""
    work_s = np.tile([1.0, 2.0, 0.0], (2, 4, 1))
    work_s[:, 2] *= 1 + 1e-5
    _agree("1f1b", 4, 1, [1000, 4000], work_s, np.array([0.1, 0.0]), np.array([False, True]))


@pytest.mark.parametrize("slow", [(0, 1, 2), (2, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)])
def test_round_trips_between_some_ranks_decide(slow):
    """The period is as many micro-batches as there are slow neighbours: 3, 5, 6 of 8 ranks."""
    work_s = np.tile([1.0, 2.0, 0.0], (2, 8, 1))
    work_s[:, slow] *= 1.2
    _agree("1f1b", 8, 1, [200, 301], work_s, np.array([0.2, 0.3]), np.zeros(2, bool))


def test_rows_do_not_disturb_each_other():
    work_s, link_s, blocking = _random("1f1b", 4, 8, 3)
    counts = np.array([1, 50, 7, 50, 50, 8, 9, 200])
    passes = np.moveaxis(work_s, 2, 0)
    together = pipeline_times("1f1b", 4, 1, counts, *passes, link_s, blocking).end_s
    for row in range(8):
        alone = pipeline_times("1f1b", 4, 1, counts[[row]], *passes[:, [row]], link_s[[row]],
                               blocking[[row]]).end_s
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-12)


def test_blocks_do_not_show(monkeypatch):
    work_s, link_s, blocking = _random("1f1b", 4, 200, 5)
    arguments = (np.full(200, 30), *np.moveaxis(work_s, 2, 0), link_s, blocking)
    whole = pipeline_times("1f1b", 4, 1, *arguments).end_s
    monkeypatch.setattr(batched, "BLOCK_CELLS", 1)
    np.testing.assert_array_equal(pipeline_times("1f1b", 4, 1, *arguments).end_s, whole)


def test_a_blocking_link_never_helps():
    work_s, link_s, _ = _random("1f1b", 6, 50, 11)
    passes = np.moveaxis(work_s, 2, 0)
    counts = np.full(50, 40)
    free = pipeline_times("1f1b", 6, 1, counts, *passes, link_s, np.zeros(50, bool))
    held = pipeline_times("1f1b", 6, 1, counts, *passes, link_s, np.ones(50, bool))
    assert (held.end_s >= free.end_s - 1e-9).all()


def _seconds(rows: int) -> float:
    work_s, link_s, blocking = _random("1f1b", 8, rows, 1)
    arguments = (np.full(rows, 64), *np.moveaxis(work_s, 2, 0), link_s, blocking)
    started = time.perf_counter()
    pipeline_times("1f1b", 8, 1, *arguments)
    return time.perf_counter() - started


def test_ten_thousand_strategies_take_half_a_second():
    assert _seconds(10_000) < 0.5 * SLACK


def test_one_strategy_takes_ten_milliseconds_at_first():
    def cold_s() -> float:
        batched._steady_graph.cache_clear()
        return _seconds(1)

    assert min(cold_s() for _ in range(3)) < 0.010 * SLACK
