"""The trace shows what was simulated, in the format's units."""

from __future__ import annotations

import json

import numpy as np
import pytest

from predictor.pipeline.timeline import Slice, chrome_trace

WORK_S = np.array([[1.0, 2.0, 0.0]] * 2)


def _slices(trace, **where):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"
            and all(event[key] == value for key, value in where.items())]


def test_slices_are_microseconds():
    """Two ranks, F 1 s, B 2 s: rank 1 runs its second backward from 5 s to 7 s."""
    trace = chrome_trace("1f1b", 1, 2, WORK_S)
    last = _slices(trace, pid=1)[-1]
    assert (last["name"], last["cat"]) == ("B1", "backward")
    assert (last["ts"], last["dur"]) == (pytest.approx(5e6), pytest.approx(2e6))
    assert last["args"] == {"chunk": 0, "micro_batch": 1, "stage": 1}


def test_the_document_is_json_with_a_name_for_every_rank():
    trace = json.loads(json.dumps(chrome_trace("1f1b", 1, 2, WORK_S)))
    names = [event["args"]["name"] for event in trace["traceEvents"]
             if event["name"] == "process_name"]
    assert names == ["pipeline rank 0", "pipeline rank 1"]


def test_passes_that_take_no_time_are_left_out():
    trace = chrome_trace("zb-h1", 1, 4, WORK_S)
    assert {event["cat"] for event in _slices(trace)} == {"forward", "backward"}


def test_hops_have_a_track_of_their_own():
    """Four forwards go on to rank 1 and four backwards return."""
    sends = _slices(chrome_trace("1f1b", 1, 4, WORK_S, 0.25), tid=1)
    assert len(sends) == 8
    assert {(event["pid"], event["args"]["to_rank"]) for event in sends} == {(0, 1), (1, 0)}
    assert sends[0]["ts"] == pytest.approx(1e6)
    assert {event["dur"] for event in sends} == {0.25e6}


def test_chunks_wrap_around():
    """pp 2, vpp 2: of 4 stages, 3 hops each way per micro-batch; rank 1 sends F back to rank 0."""
    sends = _slices(chrome_trace("interleaved-1f1b", 2, 4, np.ones((4, 3)), 0.1), tid=1)
    assert len(sends) == 4 * 6
    assert any(event["pid"] == 1 and event["name"] == "send F0 to 0" for event in sends)


def test_one_rank_sends_nothing():
    assert not _slices(chrome_trace("1f1b", 1, 2, WORK_S[:1], 0.25), tid=1)


def test_what_follows_the_pipeline_is_added():
    after = Slice(1, "optimizer", "optimizer", 9.0, 0.5)
    last = _slices(chrome_trace("1f1b", 1, 2, WORK_S, after=[after]))[-1]
    assert (last["name"], last["pid"], last["ts"], last["dur"]) == ("optimizer", 1, 9e6, 0.5e6)
