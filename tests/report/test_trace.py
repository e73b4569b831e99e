"""A trace shows the same step that was predicted."""

from __future__ import annotations

import itertools

import pytest
from builders import job

from predictor.report import trace
from predictor.spec.errors import InputError
from predictor.spec.strategy import Strategy
from predictor.step.compose import STEP_HOST_S
from predictor.step.predict import predict_step

STRATEGIES = [
    Strategy(tp=2), Strategy(pp=4), Strategy(pp=2, vpp=2), Strategy(pp=4, schedule="zb-h1"),
    Strategy(zero_stage=3), Strategy(pp=2, tp=2, zero_stage=1)]


def _passes(events: list[dict]) -> list[dict]:
    return [event for event in events if event["ph"] == "X"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_trace_ends_when_the_step_does(strategy):
    prediction = predict_step(job(), strategy)
    events = _passes(trace.chrome_trace(prediction)["traceEvents"])
    end_s = max(event["ts"] + event["dur"] for event in events) / 1e6
    assert end_s + STEP_HOST_S == pytest.approx(prediction.step_time_s, rel=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rank_does_one_thing_at_a_time(strategy):
    events = _passes(trace.chrome_trace(predict_step(job(), strategy))["traceEvents"])
    for rank in range(strategy.pp):
        mine = sorted((event["ts"], event["ts"] + event["dur"]) for event in events
                      if (event["pid"], event["tid"]) == (rank, 0))
        assert mine[0][0] >= -1e-6
        assert all(later[0] >= earlier[1] - 1e-3
                   for earlier, later in itertools.pairwise(mine))


def test_every_micro_batch_passes_every_stage_both_ways():
    """64 sequences on 8 GPUs with pp 2: 16 micro-batches through two chunks on each rank."""
    events = _passes(trace.chrome_trace(predict_step(job(), Strategy(pp=2, vpp=2)))["traceEvents"])
    forward = [event for event in events if event["cat"] == "forward"]
    assert len(forward) == 2 * 2 * 16
    assert {event["args"]["micro_batch"] for event in forward} == set(range(16))


def test_a_trace_no_viewer_opens_is_refused(monkeypatch):
    monkeypatch.setattr(trace, "MOST_EVENTS", 10)
    with pytest.raises(InputError, match="events"):
        trace.chrome_trace(predict_step(job(), Strategy(pp=2)))
