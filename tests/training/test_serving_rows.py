import numpy as np
import pandas as pd
import pytest
from kernels_made_up import data_folder

from predictor.bundle import open_bundle
from predictor.spec.errors import InputError
from predictor.training.serving_rows import predict_rows
from predictor.training.train import Training, train


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    training = Training(data_folder(folder / "data"), "gemm", sources=("kernels-long",))
    return open_bundle(train(training, folder / "runs", lambda _: None).bundle)


def asked(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"gpu": ["a100-sxm-80gb"], "op": "linear", "dtype": "bf16", "m": 4096.0,
                         "n": 4096.0, "k": 4096.0, "timing_kind": "kernel"} | columns)


def test_a_row_is_answered_with_an_interval(bundle) -> None:
    found = predict_rows(bundle, asked()).iloc[0]
    assert found["seconds"] == pytest.approx(2 * 4096**3 / 230e12, rel=0.15)
    assert found["low_s"] < found["seconds"] < found["high_s"]


def test_both_gradients_of_a_layer_are_one_answer(bundle) -> None:
    found = predict_rows(bundle, asked(**{"pass": ["bwd"]}))
    assert len(found) == 1
    assert found["seconds"][0] > 1.7 * predict_rows(bundle, asked())["seconds"][0]


def test_a_row_that_cannot_be_read_is_refused_with_its_number(bundle) -> None:
    with pytest.raises(InputError, match="row 0: GPU is not in the catalogue"):
        predict_rows(bundle, asked(gpu=["abacus"]))


def test_what_was_not_measured_says_so(bundle) -> None:
    found = predict_rows(bundle, asked(gpu=["h200-sxm"], m=[np.float64(4096)]))
    assert found["provenance"].tolist() == ["extrapolated"]


def test_a_blank_means_what_is_usual(bundle) -> None:
    blank = predict_rows(bundle, asked(timing_kind=[None], batch=[None]))
    usual = predict_rows(bundle, asked(timing_kind=["graph"], batch=[1.0]))
    assert blank["seconds"].tolist() == usual["seconds"].tolist()
