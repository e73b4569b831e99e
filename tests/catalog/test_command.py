"""The catalog verb."""

import json

import pytest
from click.testing import CliRunner

from predictor.cli.catalog import command


@pytest.mark.parametrize(("kind", "name"), [
    ("gpus", "h100-sxm"), ("clusters", "dgx-h100"), ("models", "llama-3-70b"),
    ("schedules", "interleaved-1f1b")])
def test_plain_listing_has_one_entry_per_line_and_its_source(kind, name):
    result = CliRunner().invoke(command, [kind])
    assert result.exit_code == 0
    rows = {line.split("\t")[0]: line.split("\t") for line in result.output.splitlines()}
    assert len(rows[name]) == 3 and all(rows[name])


def test_json_is_one_document(tmp_path):
    result = CliRunner().invoke(command, ["clusters", "--json", "--output",
                                          str(tmp_path / "out.json")])
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "out.json").read_text())
    assert {"schema_version", "predict_time_version", "kind", "entries"} <= set(document)
    assert {"name", "summary", "source"} == set(document["entries"][0])


def test_a_kind_that_does_not_exist_is_a_usage_error():
    assert CliRunner().invoke(command, ["planets"]).exit_code == 2


def test_a_terminal_gets_a_table(monkeypatch):
    from predictor.cli import catalog
    table = catalog._table("gpus", [("h100-sxm", "H100", "data sheet")])
    assert "h100-sxm" in table and "source" in table
