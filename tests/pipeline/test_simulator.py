"""The simulator against times worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from predictor.pipeline.registry import SCHEDULES
from predictor.pipeline.simulator import simulate, simulated
from predictor.spec.errors import InputError


def test_two_ranks_two_micro_batches():
    """F 1 s, B 2 s: rank 1 runs 1-2, 2-4, 4-5, 5-7; rank 0 waits for its gradients until 4 and 7.
    """
    timeline = simulated("1f1b", 2, 1, 2, np.array([[1.0, 2.0, 0.0]] * 2))
    np.testing.assert_allclose(timeline.start_s, [[0, 1, 4, 7], [1, 2, 4, 5]])
    np.testing.assert_allclose(timeline.end_s, [[1, 2, 6, 9], [2, 4, 5, 7]])
    assert timeline.makespan_s == 9.0


def test_a_link_delays_the_receiver_only():
    """One micro-batch through two ranks: 1 + 0.5 + 1 + 2 + 0.5 + 2."""
    timeline = simulated("1f1b", 2, 1, 1, np.array([[1.0, 2.0, 0.0]] * 2), 0.5)
    np.testing.assert_allclose(timeline.start_s, [[0, 5], [1.5, 2.5]])


def test_a_blocking_link_keeps_sender_and_receiver():
    """GPipe, F 1 s, hop 0.5 s: rank 0 sends until 1.5 before its second forward; rank 1 computes
    1.5-2.5 and only then receives until 3; the same with gradients on the way back, but sending
    an activation and receiving a gradient are one exchange."""
    timeline = simulated("gpipe", 2, 1, 2, np.array([[1.0, 1.0, 0.0]] * 2), 0.5, blocking=True)
    np.testing.assert_allclose(timeline.start_s, [[0, 1.5, 5.5, 7], [1.5, 3, 4, 5.5]])


def test_an_exchange_with_the_same_rank_counts_once():
    """1F1B, two ranks, F = B = 1 s, hop 0.5 s: in the steady state both ranks work 2 s and
    exchange once, 0.5 s, per micro-batch."""
    work_s = np.array([[1.0, 1.0, 0.0]] * 2)
    short, long = (simulated("1f1b", 2, 1, count, work_s, 0.5, blocking=True).makespan_s
                   for count in (10, 20))
    assert (long - short) / 10 == pytest.approx(2.5)


def test_unequal_stages_wait_for_the_slowest():
    timeline = simulated("gpipe", 3, 1, 4, np.array([[1.0, 1, 0], [3, 3, 0], [1, 1, 0]]))
    assert timeline.makespan_s == pytest.approx(2 * (5 + 3 * 3))


def test_an_order_that_waits_for_itself_is_refused():
    backward_first = np.array([[[1, 0, 0], [0, 0, 0]]] * 2)
    with pytest.raises(InputError, match="rank 1 for the F of stage 1, micro-batch 0"):
        simulate(backward_first, np.ones((2, 3)))


def test_ranks_that_wait_for_each_other_are_refused():
    order = np.array([[[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]],
                      [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]])
    with pytest.raises(InputError, match="deadlocks"):
        simulate(order, np.ones((2, 3)))


def test_one_rank_never_waits():
    timeline = simulate(SCHEDULES["1f1b"](1, 1, 5), np.array([[1.0, 2.0, 0.0]]), 9.0,
                        blocking=True)
    assert timeline.makespan_s == 15.0
