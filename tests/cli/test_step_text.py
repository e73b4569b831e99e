"""The report reads right, whatever made the numbers."""

from __future__ import annotations

import copy

import pytest

from predictor.cli.step_text import report

GIB = 2**30
DOCUMENT = {
    "step_time_s": 2.0, "low_s": None, "high_s": None, "interval_level": None,
    "provenance": "analytic", "predictor": "analytic",
    "breakdown": {"compute_s": 1.5, "tp_s": 0.3, "cp_s": 0.0, "bubble_s": 0.2},
    "throughput": {
        "tokens_per_s": 262144.0, "tokens_per_s_per_gpu": 16384.0, "samples_per_s": 32.0,
        "model_tflops_per_gpu": 410.25, "mfu": 0.415, "hfu": 0.5, "peak_flops": 989e12,
        "flops_convention": "attention included, causal half"},
    "memory": {
        "peak_bytes": 60 * GIB, "reserved_bytes": 64 * GIB, "device_bytes": 66 * GIB,
        "capacity_bytes": 79 * GIB, "verdict": "fits", "p_oom": None,
        "ranks": [{"pp_rank": rank, "parameters_bytes": (20 - rank) * GIB, "buffers_bytes": 0.0,
                   "device_bytes": 66 * GIB} for rank in range(2)]},
    "input": {
        "model": {"name": "tiny"},
        "cluster": {"name": "box", "groups": [
            {"gpu": {"name": "H100"}, "gpus_per_node": 8, "nodes": 2}]},
        "strategy": {"tp": 2, "pp": 2, "vpp": 1, "cp": 1, "ep": 1, "dp": 4},
        "assumed": {"schedule": {"value": "1f1b", "source": "Megatron-LM"}}},
}


def _with(**changes) -> dict:
    return copy.deepcopy(DOCUMENT) | changes


def test_head_names_the_job_and_its_degrees():
    assert report(DOCUMENT).startswith(
        "tiny on 16 x H100 (box), tp 2 pp 2 dp 4\nstep time  2 s, analytic\n")


def test_head_names_a_learned_predictor_by_the_start_of_its_digest():
    text = report(_with(provenance="extrapolated", predictor="0123456789abcdef" * 4))
    assert "\nstep time  2 s, extrapolated\npredictor  0123456789ab\n" in text


def test_breakdown_shows_shares_and_leaves_out_nothing_but_zero():
    text = report(DOCUMENT)
    assert "  compute               1.5 s  75.0%  " + "#" * 22 + "\n" in text
    assert "tensor parallel" in text
    assert "context parallel" not in text


def test_interval_is_shown_when_there_is_one():
    text = report(_with(low_s=1.8, high_s=2.3, interval_level=0.9))
    assert "2 s (1.8 s to 2.3 s at 90%), analytic" in text


def test_memory_shows_headroom_and_used_categories_only():
    text = report(DOCUMENT)
    assert "memory: fits, 13.0 of 79.0 GiB left on the fullest rank" in text
    assert "parameters" in text
    assert "buffers" not in text


@pytest.mark.parametrize(("verdict", "words"), [
    ("tight", "fits only just, or not"), ("does-not-fit", "does NOT fit")])
def test_verdicts_are_words(verdict, words):
    document = _with()
    document["memory"]["verdict"] = verdict
    assert f"memory: {words}, " in report(document)


def test_many_ranks_are_thinned_out_but_keep_the_ends():
    document = _with()
    document["memory"]["ranks"] = [
        {"pp_rank": rank, "device_bytes": GIB} for rank in range(20)]
    lines = report(document).splitlines()
    assert "  (12 more ranks: --json lists all)" in lines
    assert [line.split()[0] for line in lines if line.endswith("  1.0")][::7] == ["0", "19"]


def test_assumptions_carry_their_source():
    assert report(DOCUMENT).endswith("assumed\n  schedule = 1f1b  (Megatron-LM)")
