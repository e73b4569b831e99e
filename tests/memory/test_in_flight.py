"""Micro-batches in flight: the closed form and the exact count from the order of work."""

from __future__ import annotations

import numpy as np
import pytest
from builders import batch, gpt, job

from predictor.lowering.parts import build_stages
from predictor.memory.in_flight import held_microbatches
from predictor.pipeline.in_flight import activations_in_flight


def held(pp: int, num_microbatches: int, vpp: int = 1, **strategy):
    """Return shape (pp, vpp)."""
    work = job(gpt(num_layers=48), num_nodes=2, global_batch_size=num_microbatches * 16 // pp)
    one = batch(work, pp=pp, vpp=vpp, **strategy)
    assert one.num_microbatches.tolist() == [num_microbatches]
    return held_microbatches(one, build_stages(one)).reshape(vpp, pp).T


def test_1f1b_keeps_as_many_as_there_are_stages_from_here_to_the_end():
    assert held(4, 64).ravel().tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 8])
def test_never_more_than_there_are(num_microbatches):
    expected = np.minimum(num_microbatches, [8, 7, 6, 5, 4, 3, 2, 1])
    assert held(8, num_microbatches).ravel().tolist() == expected.tolist()


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "zb-1p", "zb-2p"])
@pytest.mark.parametrize("pp", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("num_microbatches", [1, 3, 8, 64])
def test_closed_form_and_order_agree(schedule, pp, num_microbatches):
    exact = activations_in_flight(schedule, pp, 1, num_microbatches)
    assert held(pp, num_microbatches, schedule=schedule).tolist() == exact.tolist()


@pytest.mark.parametrize(("pp", "vpp"), [(2, 2), (2, 3), (4, 2), (4, 3), (8, 2), (8, 6)])
@pytest.mark.parametrize("rounds", [1, 2, 8])
def test_closed_form_and_order_agree_with_several_chunks(pp, vpp, rounds):
    exact = activations_in_flight("interleaved-1f1b", pp, vpp, rounds * pp)
    assert held(pp, rounds * pp, vpp).tolist() == exact.tolist()
