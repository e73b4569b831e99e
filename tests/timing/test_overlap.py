"""Communication beside computation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.timing.overlap import exposed_s, overlapped_s

SECONDS = st.floats(0, 1e6)


@given(compute=SECONDS, communication=SECONDS)
def test_never_shorter_than_the_longer_nor_longer_than_the_sum(compute, communication):
    both = overlapped_s(compute, communication)
    assert max(compute, communication) <= both <= compute + communication


@given(compute=SECONDS, communication=SECONDS)
def test_it_does_not_matter_which_is_which(compute, communication):
    assert overlapped_s(compute, communication) == overlapped_s(communication, compute)


@given(compute=SECONDS, communication=SECONDS)
def test_exposed_is_at_most_the_whole_communication(compute, communication):
    visible = exposed_s(compute, communication)
    slack = 1e-9 * (compute + communication)
    assert -slack <= visible <= communication + slack


def test_side_by_side_both_slow_down_by_an_eighth():
    """Galvatron measured 1.1256 on A100."""
    assert overlapped_s(10.0, 8.0) == pytest.approx(11.0, rel=0.02)


def test_nothing_to_hide_behind_exposes_everything():
    assert exposed_s(0.0, 3.0) == 3.0
    assert exposed_s(3.0, 0.0) == 0.0
