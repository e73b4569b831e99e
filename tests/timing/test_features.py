import numpy as np
import pytest
from kernel_tables import GPUS, ON_H100, attention, gemm, table

from predictor.lowering.tables import KernelKind, Phase
from predictor.timing.features import (
    FEATURES, MODEL_OF_KIND, MODELS, SOFTWARE, Conditions, TimingKind, kernel_features, unit_of,
)


def column(model: str, name: str, rows) -> np.ndarray:
    matrix = kernel_features(model, rows, GPUS, Conditions.usual(rows))
    return matrix[:, FEATURES[model].index(name)]


def test_sizes_are_logarithms() -> None:
    assert column("gemm", "m", gemm([1024, 4096], 512, 512)).tolist() == [10.0, 12.0]


def test_a_wave_is_the_filled_share_of_the_last_round_of_tiles() -> None:
    rows = gemm(128 * 109, 128, 4096)  # 109 tiles on the A100's 108 multiprocessors
    assert column("gemm", "wave_128x128", rows)[0] == pytest.approx(109 / 108 / 2)


def test_attention_counts_the_keys_that_are_seen() -> None:
    rows = attention(4096, causal=0.5)
    assert column("attention", "keys_seen", rows)[0] == pytest.approx(11.0)


def test_elements_without_a_shape_have_no_rows() -> None:
    rows = table(kind=KernelKind.ELEMENTWISE, m=[1e6, 1024], n=[1, 1024], bytes=4e6)
    assert np.isnan(column("memory_bound", "rows", rows)).tolist() == [True, False]


def test_a_recomputed_kernel_looks_like_a_forward_one() -> None:
    again, first = gemm(512, 512, 512, phase=Phase.RECOMPUTE), gemm(512, 512, 512)
    usual = Conditions.usual(again)
    np.testing.assert_array_equal(kernel_features("gemm", again, GPUS, usual),
                                  kernel_features("gemm", first, GPUS, usual))


def test_devices_differ_by_their_figures_only() -> None:
    a100, h100 = gemm(512, 512, 512), gemm(512, 512, 512, device=ON_H100)
    peaks = [column("gemm", "peak", rows)[0] for rows in (a100, h100)]
    assert peaks == pytest.approx(np.log2([312e12, 989.4e12]), rel=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_every_feature_is_finite_or_blank_and_has_a_unit(model: str) -> None:
    kinds = [int(kind) for kind in KernelKind if MODELS[MODEL_OF_KIND[kind]] == model]
    rows = table(kind=kinds, m=[1] * len(kinds), n=1, k=1)
    found = kernel_features(model, rows, GPUS, Conditions.usual(rows))
    assert not np.isinf(found).any()
    assert all(unit_of(name) for name in FEATURES[model])


def test_a_step_runs_products_in_no_particular_library() -> None:
    rows = table(kind=[KernelKind.GEMM, KernelKind.ATTENTION, KernelKind.ATTENTION],
                 portable=[0, 0, 1])
    usual = Conditions.usual(rows)
    assert usual.timing.tolist() == [TimingKind.GRAPH, TimingKind.KERNEL, TimingKind.KERNEL]
    assert np.isnan(usual.software[0])
    assert [SOFTWARE[int(code)] for code in usual.software[1:]] == ["cudnn", "flash-attn"]
