from kernel_tables import table

from predictor.lowering.tables import Dtype, KernelKind, Phase
from predictor.timing.groups import KERNEL_GROUPS, kernel_groups, nearest
from predictor.timing.residual import UNKNOWN_GROUP


def name_of(**columns: int) -> str:
    return KERNEL_GROUPS[int(kernel_groups(table(**columns))[0])]


def test_a_group_names_family_phase_and_type() -> None:
    assert name_of(kind=KernelKind.GEMM, phase=Phase.WEIGHT, dtype=Dtype.BF16) == "gemm/weight/bf16"


def test_a_recomputed_kernel_is_a_forward_one() -> None:
    assert name_of(kind=KernelKind.NORM, phase=Phase.RECOMPUTE, dtype=Dtype.BF16) == (
        "norm/forward/bf16")


def test_a_group_without_rows_leans_on_another_type_then_on_another_phase() -> None:
    known = ("gemm/forward/fp16", "gemm/weight/fp16", "norm/forward/bf16")
    place, steps = nearest(
        ("gemm/weight/fp16", "gemm/weight/bf16", "gemm/backward/bf16", "scan/forward/bf16"), known)
    assert place.tolist() == [1, 1, 0, UNKNOWN_GROUP]
    assert steps.tolist() == [0, 1, 2, 0]
