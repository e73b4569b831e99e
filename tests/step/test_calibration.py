"""A calibration corrects the machine that it was fitted on, and no other."""

from dataclasses import replace

import numpy as np
import pytest

from predictor.catalog import load_cluster
from predictor.spec.errors import InputError
from predictor.spec.job import TrainingJob
from predictor.spec.model import ModelConfig
from predictor.spec.strategy import Strategy
from predictor.step.calibration import Calibration, Coefficients, parse_calibration
from predictor.step.predict import predict_step, predict_steps

MODEL = ModelConfig(name="small", num_layers=4, hidden_size=256, ffn_hidden_size=1024,
                    num_attention_heads=8, vocab_size=4096)
CPU = TrainingJob(model=MODEL, cluster=load_cluster("cpu-gloo"), seq_len=128, global_batch_size=8,
                  framework="torchtitan", implementation="eager")
DDP = Strategy(micro_batch_size=4, precision="fp32", zero_stage=0)


def calibration(**changes):
    return Calibration(gpu="cpu-core", implementation="eager", predictor="analytic",
                       coefficients=Coefficients(**changes))


def seconds(strategy, job=CPU, **changes):
    found = predict_step(job, strategy, calibration=calibration(**changes) if changes else None)
    return found.step_time_s, found.breakdown


def test_the_usual_coefficients_change_nothing():
    assert seconds(DDP, kernel_forward=1.0) == seconds(DDP)


def test_a_file_gives_back_what_was_written():
    written = calibration(kernel_forward=1.25, gather_s_per_byte=2e-10)
    assert parse_calibration(written.to_json()) == written
    assert len(written.digest) == 64


def test_kernels_scale_by_pass():
    slower = seconds(DDP, kernel_forward=2.0, kernel_backward=2.0)[1]["compute_s"]
    assert slower == pytest.approx(2 * seconds(DDP)[1]["compute_s"])


def test_the_host_of_a_cpu_adds_to_its_kernels():
    """Every pass launches kernels: one micro-batch twice as often costs twice the host time."""
    one = seconds(DDP, host_forward_s=1e-4)[1]["overhead_s"]
    two = seconds(replace(DDP, micro_batch_size=2), host_forward_s=1e-4)[1]["overhead_s"]
    assert one > 4e-3
    assert two == pytest.approx(2 * one)


def test_communication_that_stretches_by_two_is_not_hidden():
    exposed = seconds(DDP, overlap_slowdown=2.0)[1]["dp_s"]
    alone = seconds(replace(DDP, overlap_grad_reduce=False))[1]["dp_s"]
    assert exposed == pytest.approx(alone)
    assert seconds(DDP)[1]["dp_s"] < alone / 4


def test_gathered_parameters_are_handled_in_every_micro_batch():
    """Five times: before and within each of two passes; parameters of fp32 have four bytes."""
    fsdp = replace(DDP, zero_stage=3, overlap_param_gather=False, overlap_grad_reduce=False)
    extra = seconds(fsdp, gather_s_per_byte=1e-9)[0] - seconds(fsdp)[0]
    parameters = predict_step(CPU, fsdp).times.ranks.held_dense[0]
    assert extra == pytest.approx(2 * 4e-9 * parameters, rel=1e-6)


def test_buckets_are_reduced_once_in_a_step():
    ddp = replace(DDP, overlap_grad_reduce=False, micro_batch_size=1)
    extra = seconds(ddp, bucket_s=1e-3)[0] - seconds(ddp)[0]
    size = 4 * predict_step(CPU, ddp).times.ranks.dense[0]
    assert extra == pytest.approx(1e-3 * (1 + np.ceil((size - 2**20) / (25 * 2**20))))


def test_dispatch_of_split_tensors_counts_with_tensor_parallelism_only():
    split = replace(DDP, tp=2, micro_batch_size=8)
    assert seconds(split, tensor_forward_s=1e-4)[0] > seconds(split)[0] + 5e-3
    assert seconds(DDP, tensor_forward_s=1e-4) == seconds(DDP)


def test_other_gpus_and_implementations_stay_as_they_are():
    h100 = replace(CPU, cluster=load_cluster("dgx-h100"), global_batch_size=64)
    compiled = replace(CPU, implementation="compiled")
    changes = {"kernel_forward": 3.0, "host_forward_s": 1e-3}
    jobs, strategies = [CPU, h100, compiled], [DDP, replace(DDP, precision="bf16"), DDP]
    before = predict_steps(jobs, strategies).step_time_s
    after = predict_steps(jobs, strategies, calibration=calibration(**changes)).step_time_s
    assert (after != before).tolist() == [True, False, False]


@pytest.mark.parametrize(("old", "new", "message"), [
    ('"gpu": "cpu-core"', '"gpus": "cpu-core"', "no key 'gpus'; remove it"),
    ('"kernel_forward": 1.0', '"kernel_forward": 0', "kernel_forward is a number from 0 to 1000"),
    ('"kernel_forward": 1.0', '"kernel_forward": true', "got True"),
    ('"overlap_slowdown": 1.13', '"overlap_slowdown": 2.5', "from 1 to 2 and got 2.5"),
    ('"bucket_s": 0.0', '"buckets_s": 0.0', "no coefficient 'buckets_s'"),
    ('"schema_version": 1', '"schema_version": 7', "schema_version is 1 and got 7"),
    ('"eager"', '"lazy"', "no implementation 'lazy'"),
    ("{", "[", "no JSON"),
])
def test_a_damaged_file_is_refused(old, new, message):
    text = calibration(kernel_forward=1.0).to_json()
    assert old in text
    with pytest.raises(InputError, match=message.replace("(", "\\(")):
        parse_calibration(text.replace(old, new, 1))
