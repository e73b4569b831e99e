"""``predict-time calibrate`` writes what ``step`` and ``evaluate`` take."""

import json

from calibrations import campaign

from predictor.step.calibration import parse_calibration

JOB = ("step", "--cluster", "cpu-gloo", "--model", "gpt-3-125m", "--global-batch-size", "4",
       "--seq-len", "128", "--precision", "fp32", "--framework", "torchtitan",
       "--implementation", "eager", "--json")


def test_a_step_is_corrected_by_what_was_calibrated(tmp_path, predict_time):
    out = tmp_path / "calibration.json"
    found = predict_time("calibrate", campaign(tmp_path / "c"), "--analytic", "--out", out,
                         "--json")
    assert found.code == 0, found.err
    digest = json.loads(found.out)["calibration"]
    assert parse_calibration(out.read_text()).digest == digest
    plain, corrected = (json.loads(predict_time(*JOB, "--analytic", *more).out)
                        for more in ((), ("--calibration", out)))
    assert plain["calibration"] is None
    assert corrected["calibration"] == digest
    assert corrected["step_time_s"] != plain["step_time_s"]


def test_another_predictor_or_gpu_is_told(tmp_path, predict_time):
    out = tmp_path / "calibration.json"
    predict_time("calibrate", campaign(tmp_path / "c"), "--analytic", "--out", out)
    refused = predict_time(*JOB, "--calibration", out)
    assert refused.code == 2
    assert "corrects the predictor analytic and this is" in refused.err
    elsewhere = predict_time("step", "--model", "llama-3-8b", "--cluster", "dgx-h100",
                             "--global-batch-size", "8", "--seq-len", "128", "--analytic",
                             "--calibration", out)
    assert elsewhere.code == 0
    assert "holds for cpu-core and changes nothing for h100-sxm" in elsewhere.err


def test_what_is_no_calibration_is_refused(tmp_path, predict_time):
    (tmp_path / "none.json").write_text("[]")
    for path, message in ((tmp_path / "none.json", "a calibration is an object"),
                          (tmp_path / "absent.json", "No such file")):
        refused = predict_time(*JOB, "--analytic", "--calibration", path)
        assert refused.code == 2
        assert message in refused.err
    assert predict_time("calibrate", tmp_path, "--out", tmp_path / "c.json").code == 2
    assert not (tmp_path / "c.json").exists()
