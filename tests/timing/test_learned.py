from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_tables import GPUS, ON_H100, gemm, table

from predictor.lowering.tables import Dtype, KernelKind, Phase
from predictor.timing.device import Regime
from predictor.timing.features import DEVICE_FEATURES, FEATURES, Conditions, kernel_features
from predictor.timing.kernels import kernel_times
from predictor.timing.learned import LearnedTimer, Provenance, distinct
from predictor.timing.residual import ResidualModel

LEVELS = np.array([0.5, 0.9])


@dataclass
class Longer:
    """Says that every operation takes ``e ** slope`` times longer per doubling of column 0."""

    slope: float = 0.0
    constant: float = 0.0
    seen: list[int] = field(default_factory=list)

    def predict(self, x: np.ndarray) -> np.ndarray:
        self.seen.append(len(x))
        return self.constant + self.slope * x[:, 0].astype(float)


def model(name: str = "gemm", groups: tuple[str, ...] = ("gemm/forward/bf16",),
          regressor: Longer | None = None, devices: np.ndarray | None = None) -> ResidualModel:
    count = len(FEATURES[name])
    columns = DEVICE_FEATURES[1:] if devices is not None else ()
    return ResidualModel(
        name, FEATURES[name], regressor or Longer(), np.full(count, -1e9), np.full(count, 1e9),
        groups, np.zeros(len(groups)), LEVELS,
        np.tile([[0.1, 0.2], [0.3, 0.6]], (len(groups), 1, 1)), columns,
        devices if devices is not None else np.empty((0, 0), dtype=np.float32))


def test_without_models_times_are_the_analytic_ones() -> None:
    rows = gemm([512, 4096], 4096, 4096)
    found = LearnedTimer({}).estimate_kernels(rows, GPUS)
    assert found.seconds.tolist() == kernel_times(rows, GPUS).tolist()
    assert set(found.provenance) == {Provenance.ANALYTIC}


def test_an_isolated_kernel_is_corrected_by_what_was_learned() -> None:
    rows = gemm(4096, 4096, 4096)
    timer = LearnedTimer({"gemm": model(regressor=Longer(constant=np.log(1.5)))})
    found = timer.estimate_kernels(rows, GPUS, regime=Regime.ISOLATED)
    assert found.seconds == pytest.approx(1.5 * kernel_times(rows, GPUS, Regime.ISOLATED))
    assert found.provenance.tolist() == [Provenance.LEARNED]


def test_in_a_step_large_products_keep_the_rate_of_the_hot_regime() -> None:
    rows = gemm(8192, 8192, 8192)
    timer = LearnedTimer({"gemm": model(regressor=Longer(constant=2.0))})
    assert timer.kernels(rows, GPUS) == pytest.approx(kernel_times(rows, GPUS))


def test_in_a_step_other_shapes_differ_as_they_do_alone() -> None:
    rows = gemm(1024, 8192, 8192)  # column 0 is log2 m: 3.5 below the middle of the largest
    timer = LearnedTimer({"gemm": model(regressor=Longer(slope=-0.1))})
    assert timer.kernels(rows, GPUS) == pytest.approx(np.exp(0.35) * kernel_times(rows, GPUS))


def test_products_of_eight_bits_stay_analytic_in_a_step() -> None:
    rows = gemm(1024, 4096, 4096, dtype=Dtype.FP8, device=ON_H100)
    timer = LearnedTimer({"gemm": model(groups=("gemm/forward/fp8",),
                                        regressor=Longer(constant=1.0))})
    assert timer.kernels(rows, GPUS).tolist() == kernel_times(rows, GPUS).tolist()


def test_equal_rows_are_looked_at_once() -> None:
    regressor = Longer()
    rows = gemm(np.tile([512, 1024, 2048], 100), 4096, 4096)
    LearnedTimer({"gemm": model(regressor=regressor)}).estimate_kernels(
        rows, GPUS, regime=Regime.ISOLATED)
    assert regressor.seen == [3]


def test_a_type_that_was_not_measured_leans_on_one_that_was() -> None:
    rows = gemm(4096, 4096, 4096, dtype=Dtype.FP16)
    found = LearnedTimer({"gemm": model()}).estimate_kernels(
        rows, GPUS, regime=Regime.ISOLATED, level=0.9)
    assert found.provenance.tolist() == [Provenance.NEIGHBOUR]
    assert found.high_s == pytest.approx(found.seconds * np.exp(0.6))


def test_an_optimizer_leans_on_elementwise_kernels() -> None:
    rows = table(kind=KernelKind.OPTIMIZER, phase=Phase.STEP, dtype=Dtype.FP32, m=1e8, n=1,
                 bytes=2.8e9)
    timer = LearnedTimer({"memory_bound": model(
        "memory_bound", ("elementwise/forward/fp32",), Longer(constant=np.log(1.2)))})
    found = timer.estimate_kernels(rows, GPUS)
    assert found.seconds == pytest.approx(1.2 * kernel_times(rows, GPUS))
    assert found.provenance.tolist() == [Provenance.NEIGHBOUR]


def test_a_gpu_that_nobody_measured_has_a_wider_interval() -> None:
    rows = gemm(4096, 4096, 4096, device=[0, ON_H100])
    seen = kernel_features("gemm", rows, GPUS, Conditions.usual(rows))[
        :1, [FEATURES["gemm"].index(name) for name in DEVICE_FEATURES[1:]]]
    found = LearnedTimer({"gemm": model(devices=seen)}).estimate_kernels(
        rows, GPUS, regime=Regime.ISOLATED, level=0.9)
    assert found.provenance.tolist() == [Provenance.LEARNED, Provenance.EXTRAPOLATED]
    assert found.high_s / found.seconds == pytest.approx(np.exp([0.2, 0.6]))
    assert (found.low_s < found.seconds).all()


def test_a_level_that_was_not_calibrated_has_no_interval() -> None:
    found = LearnedTimer({"gemm": model()}).estimate_kernels(
        gemm(512, 512, 512), GPUS, regime=Regime.ISOLATED, level=0.99)
    assert np.isnan(found.low_s).all() and np.isnan(found.high_s).all()


@given(values=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, -0.0, 1.5, np.nan])),
                       min_size=1, max_size=40))
def test_distinct_rows_give_the_table_back(values: list[tuple[int, float]]) -> None:
    first_column = np.array([one for one, _ in values])
    second_column = np.array([other for _, other in values])
    first, inverse = distinct([first_column, second_column])
    np.testing.assert_array_equal(first_column[first][inverse], first_column)
    np.testing.assert_array_equal(second_column[first][inverse], second_column)
    assert len(first) <= len(set(map(str, values)))
