"""The campaign files that come with the project are good ones."""

from pathlib import Path

import pytest

from predictor.profiling.campaign import plan, read_campaign

FILES = sorted((Path(__file__).parents[2] / "profiling").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_campaign_file_plans_points(path):
    campaign = read_campaign(path)
    assert campaign.name == path.stem
    assert plan(campaign)


def test_there_is_one_for_a_cpu_and_one_for_a_single_gpu():
    assert {"quick", "standard", "cpu-gloo", "h200-single"} <= {path.stem for path in FILES}
