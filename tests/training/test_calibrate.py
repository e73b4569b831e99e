"""``calibrate`` finds the coefficients that a machine's layers were made with."""

from dataclasses import asdict

import pandas as pd
import pytest
from calibrations import TRUE, campaign

from predictor.spec.errors import InputError
from predictor.step.calibration import Coefficients
from predictor.timing.analytic import AnalyticTimer
from predictor.training.calibrate import calibrate


@pytest.fixture
def folder(tmp_path):
    return campaign(tmp_path / "campaign")


def test_the_coefficients_are_found_again(folder):
    found = calibrate(folder, AnalyticTimer(), "analytic")
    assert asdict(found.coefficients) == pytest.approx(asdict(TRUE), rel=0.05)
    assert all(kind["mape_after"] < 1 < kind["mape_before"]
               for kind in found.fitted.values() if isinstance(kind, dict))


def test_few_timings_change_nothing(folder):
    frame = pd.read_parquet(folder / "layers.parquet")
    frame.head(6).to_parquet(folder / "layers.parquet")
    (folder / "overlaps.parquet").unlink()
    assert calibrate(folder, AnalyticTimer(), "analytic").coefficients == Coefficients()


def test_a_campaign_without_layers_is_refused(folder):
    (folder / "layers.parquet").unlink()
    (folder / "overlaps.parquet").unlink()
    with pytest.raises(InputError, match="of 0 GPUs; give a campaign with layers"):
        calibrate(folder, AnalyticTimer(), "analytic")
