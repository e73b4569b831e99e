"""Every schedule runs every pass once, in an order that can be run."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from predictor.pipeline.graph import build_graph
from predictor.pipeline.registry import SCHEDULES
from predictor.pipeline.schedule import Work
from predictor.pipeline.simulator import simulate
from predictor.pipeline.steady import find_steady
from predictor.spec.errors import InputError
from predictor.spec.vocabulary import Schedule as Words

SHAPES = [(name, pp, 1) for name in SCHEDULES for pp in (1, 2, 3, 5)] + [
    ("interleaved-1f1b", pp, vpp) for pp in (2, 3, 4) for vpp in (2, 3)] + [
    ("gpipe", 3, 2)]


def _words(order: np.ndarray) -> list[str]:
    return [" ".join(f"{Work(work).name}{microbatch}" for work, _, microbatch in rank)
            for rank in order.tolist()]


@pytest.mark.parametrize(("name", "pp", "vpp"), SHAPES)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_every_pass_runs_once(name, pp, vpp, count):
    schedule = SCHEDULES[name]
    kinds = 3 if schedule.splits_weight else 2
    expected = [(work, chunk, microbatch) for work in range(kinds) for chunk in range(vpp)
                for microbatch in range(count)]
    for rank in schedule(pp, vpp, count).tolist():
        assert sorted(map(tuple, rank)) == expected


@pytest.mark.parametrize(("name", "pp", "vpp"), SHAPES)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_no_schedule_deadlocks(name, pp, vpp, count):
    simulate(SCHEDULES[name](pp, vpp, count), np.ones((pp * vpp, 3)))


def test_every_word_of_a_job_is_a_schedule():
    assert set(SCHEDULES) == set(get_args(Words))


def test_gpipe_is_all_forwards_then_all_backwards():
    assert _words(SCHEDULES["gpipe"](2, 1, 3)) == ["F0 F1 F2 B0 B1 B2"] * 2


def test_1f1b_is_the_published_order():
    """Narayanan et al. 2021, arXiv 2104.04473, figure 4 (upper part shows it for 4 ranks)."""
    assert _words(SCHEDULES["1f1b"](3, 1, 4)) == [
        "F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]


def test_interleaved_is_the_order_of_megatron():
    """pp 2, vpp 2, 4 micro-batches: rank 0 warms up with 2 x 1 + 2 passes, rank 1 with 2."""
    first, last = SCHEDULES["interleaved-1f1b"](2, 2, 4).tolist()
    forwards = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    for order in (first, last):
        assert [(chunk, batch) for work, chunk, batch in order if work == Work.F] == forwards
        assert [(1 - chunk, batch) for work, chunk, batch in order if work == Work.B] == forwards
    assert [work for work, _, _ in first] == [0] * 4 + [0, 1] * 4 + [1] * 4
    assert [work for work, _, _ in last] == [0] * 2 + [0, 1] * 6 + [1] * 2


def test_a_remainder_smaller_than_the_pipeline_joins_a_larger_group():
    """Megatron-Core schedules.py refuses 6 micro-batches in groups of 4: 2 would be left over."""
    assert SCHEDULES["interleaved-1f1b"].group(4, 6) == 6
    assert SCHEDULES["interleaved-1f1b"].group(4, 9) == 5
    assert SCHEDULES["interleaved-1f1b"].group(4, 8) == 4


@pytest.mark.parametrize("count", [1, 3, 8])
def test_interleaving_one_chunk_is_1f1b(count):
    np.testing.assert_array_equal(SCHEDULES["interleaved-1f1b"](4, 1, count),
                                  SCHEDULES["1f1b"](4, 1, count))


def test_zb_h1_puts_off_as_many_weight_gradients_as_the_rank():
    """Qi et al. 2024, arXiv 2401.10241, figure 3."""
    first, _, last = _words(SCHEDULES["zb-h1"](3, 1, 5))
    assert first == "F0 F1 F2 B0 W0 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4"
    assert last == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4"


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-1p", "zb-2p"])
def test_only_some_schedules_take_chunks(name):
    with pytest.raises(InputError, match="one chunk per rank"):
        SCHEDULES[name](4, 2, 8)


@pytest.mark.parametrize(("name", "pp", "vpp", "group", "rest"), [
    (name, pp, 1, pp, rest) for name in SCHEDULES if name != "gpipe" for pp in (2, 3, 5)
    for rest in (0, 1)] + [
    ("interleaved-1f1b", 2, 2, 2, 0), ("interleaved-1f1b", 4, 3, 4, 0),
    ("interleaved-1f1b", 4, 2, 5, 4),
    ("1f1b", 5, 1, 3, 1), ("1f1b", 8, 1, 7, 0), ("zb-h1", 5, 1, 4, 2), ("zb-2p", 6, 1, 5, 0)])
def test_longer_steps_repeat_a_round_in_the_middle(name, pp, vpp, group, rest):
    """What lets the batched recurrence skip rounds: the longer graph is the shorter one with
    rounds inserted at its cut."""
    count, more = 6 * group + rest, 3
    build = SCHEDULES[name].build
    short = build_graph(build(pp, vpp, count, group), pp, vpp)
    long = build_graph(build(pp, vpp, count + more * group, group), pp, vpp)
    steady = find_steady(short, group)
    assert steady is not None
    inserted = len(long.rank) - len(short.rank)
    cut, after = steady.cut, steady.cut + inserted
    for column in ("stage", "work", "held", "microbatch", "previous", "needs"):
        one, other = getattr(short, column), getattr(long, column)
        np.testing.assert_array_equal(one[:cut], other[:cut])
        shift = {"microbatch": more * group, "previous": inserted, "needs": inserted}.get(column, 0)
        np.testing.assert_array_equal(one[cut:] + shift, other[after:])
    starts = {level.start for level in short.levels}
    assert {start for start in starts if start <= cut} == \
        {level.start for level in long.levels if level.start <= cut}
    assert {start + inserted for start in starts if start >= cut} == \
        {level.start for level in long.levels if level.start >= after}
