"""Campaign files are checked whole, and planned the same on every machine."""

from pathlib import Path

import pytest
from campaigns import HEAD, KERNELS

from predictor.profiling.campaign import parse_campaign, plan, read_campaign
from predictor.spec.errors import InputError

ROOT = Path(__file__).parents[2]


def problems(text):
    with pytest.raises(InputError) as caught:
        parse_campaign(text)
    return [str(one) for one in caught.value.problems]


def test_a_grid_is_every_combination():
    points = plan(parse_campaign(HEAD + "kernels:\n  - family: linear\n    m: {from: 16, to: 64, "
                                 "factor: 2}\n    n: [8, 24]\n    k: 8\n    dtype: fp32\n"))
    assert [(point.spec["m"], point.spec["n"]) for point in points] == [
        (16, 8), (16, 24), (32, 8), (32, 24), (64, 8), (64, 24)]


def test_shapes_belong_together():
    points = plan(parse_campaign(HEAD + "kernels:\n  - {family: linear, dtype: fp32, shapes: "
                                 "[{m: 1, n: 2, k: 3}, {m: 4, n: 5, k: 6}]}\n"))
    assert [tuple(point.spec[name] for name in "mnk") for point in points] == [(1, 2, 3), (4, 5, 6)]


def test_a_sample_is_drawn_the_same_each_time_and_inside_the_grid():
    text = HEAD + ("kernels:\n  - {family: linear, m: {from: 16, to: 16384, factor: 1.5}, n: "
                   "[8, 16], k: 8, dtype: fp32, sample: 7}\n")
    drawn, whole = plan(parse_campaign(text)), plan(parse_campaign(text.replace("7", "0")))
    assert len(drawn) == 7
    assert drawn == plan(parse_campaign(text))
    assert {point.key for point in drawn} < {point.key for point in whole}
    assert drawn != plan(parse_campaign("seed: 1\n" + text))


def test_equal_points_are_measured_once():
    assert len(plan(parse_campaign(HEAD + KERNELS + KERNELS.removeprefix("kernels:\n")))) == 2


def test_launches_of_all_steps_take_turns():
    steps = HEAD + ("steps:\n  - {style: gpt, hidden_size: 8, ffn_hidden_size: 8, "
                    "num_attention_heads: 2, seq_len: 4, vocab_size: 16, global_batch_size: [2, 4],"
                    " ranks: [1, 2], launches: 3}\n")
    points = plan(parse_campaign(steps))
    assert [point.launch for point in points] == [0] * 4 + [1] * 4 + [2] * 4
    assert len({point.key for point in points}) == 12


@pytest.mark.parametrize(("text", "said"), [
    ("name: a\nkernel: []\n", "did you mean kernels?"),
    ("name: a\n" + KERNELS, "the campaign has no gpu"),
    (HEAD, "measures nothing"),
    (HEAD + "kernels: 3\n", "is a list of grids"),
    (HEAD + KERNELS.replace("linear", "linaer"), "did you mean linear?"),
    (HEAD + KERNELS.replace("fp32", "fp23"), "no data type 'fp23'"),
    (HEAD + KERNELS.replace("[32, 64]", "-3"), "needs a whole number m"),
    (HEAD + KERNELS.replace("[32, 64]", "{from: 1, to: 9}"), "is no range"),
    (HEAD + KERNELS.replace("k: 48", "k: 48, q: 1"), "has no column q"),
    (HEAD + KERNELS.replace("k: 48", "k: 48, launches: 0"), "launches is a whole number"),
    (HEAD + "threads: 0\n" + KERNELS, "threads is a whole number from 1"),
    (HEAD + "seed: 1\nseed: 2\n" + KERNELS, "seed"),
    ("- a\n", "a campaign is a mapping"),
    ("a: [\n", "no YAML"),
    (HEAD + "kernels:\n  - {family: linear, m: {from: 1, to: 100000, factor: 1.01}, "
     "n: {from: 1, to: 100000, factor: 1.01}, k: 1, dtype: fp32}\n", "combinations"),
])
def test_what_is_wrong_is_said(text, said):
    assert any(said in one for one in problems(text)), problems(text)


def test_everything_wrong_is_said_at_once():
    found = problems("nam: a\ngpu: x\nthreads: -1\nkernels:\n  - {family: linear, m: 0, n: 1, "
                     "k: 1, dtype: fp0}\n")
    assert len(found) == 5


STEP = ("steps:\n  - {{style: llama, hidden_size: 32, ffn_hidden_size: 64, num_attention_heads: 4, "
        "num_layers: 4, seq_len: 16, vocab_size: 64, global_batch_size: 4, ranks: 2, {}}}\n")


@pytest.mark.parametrize(("cells", "said"), [
    ("tp: 3", "does not divide 2 ranks"),
    ("tp: 2, zero_stage: 3", "there is one"),
    ("zero_stage: 2", "zero_stage is 0 (DDP) or 3 (FSDP2)"),
    ("pp: 2", "a pipeline has a schedule"),
    ("pp: 2, schedule: zb-h1", "one of gpipe"),
    ("pp: 2, schedule: 1f1b, vpp: 2", "interleaved-1f1b has vpp above 1"),
    ("pp: 2, schedule: interleaved-1f1b, vpp: 3", "do not divide 4 layers"),
    ("schedule: gpipe", "need pp above 1"),
    ("micro_batch_size: 3", "no multiple of dp 2 x micro_batch_size 3"),
    ("pp: 2, schedule: 1f1b, micro_batch_size: 4", "as many micro-batches as stages"),
    ("tp: 2, num_query_groups: 1", "tp 2 does not divide num_query_groups 1"),
    ("ep: 2", "a step has no ep"),
])
def test_strategies_that_cannot_run_are_refused(cells, said):
    assert any(said in one for one in problems(HEAD + STEP.format(cells)))


@pytest.mark.parametrize(("cells", "said"), [
    ("collective: all_reduce, dtype: fp32, bytes: 0", "bytes"),
    ("collective: allreduce, dtype: fp32, bytes: 64", "one of all_reduce"),
    ("collective: all_reduce, dtype: fp32, bytes: 64, group: 4", "group"),
])
def test_collectives_that_cannot_run_are_refused(cells, said):
    found = problems(HEAD + f"collectives:\n  - {{{cells}, ranks: 2}}\n")
    assert any(said in one for one in found), found


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_campaign(tmp_path / "none.yaml")
