"""The evaluate verb."""

from __future__ import annotations

import csv
import json

import pytest

HEADER = ("id,family,framework,gpu,gpus_per_node,num_gpus,model_name,arch,num_layers,hidden,"
          "num_heads,vocab,seq_len,global_batch,micro_batch,tp,pp,precision,workload,step_time_s,"
          "rank_group,tier")
ROWS = "\n".join(f"{name},f{name},Megatron-LM,A100-SXM4-80GB,8,16,gpt,gpt,24,2048,16,51200,2048,64,"
                 f"1,{tp},1,bf16,pretrain,{seconds},g,A"
                 for name, tp, seconds in (("a", 1, 1.0), ("b", 2, 1.3), ("c", 4, 1.9),
                                           ("d", 3, 2.0)))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}\n{ROWS}\n", encoding="utf-8")
    return path


def test_text_names_groups_order_refusals_and_worst_rows(predict_time, table):
    result = predict_time("evaluate", table)
    assert result.code == 0
    for words in ("3 of 4 rows predicted", "MAPE", "mean over groups", "Kendall tau",
                  "1 rows refused", "for example d:", "worst rows", "compute"):
        assert words in result.out
    assert result.err == ""


def test_json_is_one_document_and_output_holds_it(predict_time, table, tmp_path):
    file = tmp_path / "scores.json"
    result = predict_time("evaluate", table, "--json", "--output", file, "--group-by", "tier")
    document = json.loads(result.out)
    assert json.loads(file.read_text(encoding="utf-8")) == document
    assert list(document["by_group"]) == ["A"]
    assert document["refused"][0]["id"] == "d"
    assert document["ranking"]["groups"] == 1


def test_per_row_file(predict_time, table, tmp_path):
    file = tmp_path / "rows.csv"
    predict_time("evaluate", table, "--analytic", "--per-row", file,
                 "--where", "tp <= 2 or tp == 3")
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    assert [row["id"] for row in rows] == ["a", "b", "d"]
    assert list(rows[0])[:8] == ["id", "measured", "predicted", "low", "high", "provenance",
                                 "refused", "verdict"]
    assert rows[0]["provenance"] == "analytic"
    assert rows[2]["predicted"] == ""
    assert "heads" in rows[2]["refused"]


def test_fail_on_refused(predict_time, table):
    assert predict_time("evaluate", table, "--fail-on", "refused").code == 1
    assert predict_time("evaluate", table, "--where", "tp <= 2", "--fail-on", "refused").code == 0


def test_fail_on_oom(predict_time, table):
    assert predict_time("evaluate", table, "--fail-on", "oom").code == 0
    big = table.with_name("big.csv")
    big.write_text(table.read_text(encoding="utf-8").replace(",64,1,", ",1024,64,"),
                   encoding="utf-8")
    assert predict_time("evaluate", big, "--fail-on", "oom").code == 1


@pytest.mark.parametrize(("arguments", "words"), [
    (["--where", "tier ="], "character 6"), (["--group-by", "nope"], "nope"),
    (["--cv", "family"], "no learned predictor to refit"),
    (["--cv", "gpu", "--quantity", "kernel_time"], "predict-time train"),
    (["--predictor", "models:/x"], "is no address of a model"),
    (["--predictor", "none-such"], "no learned predictor 'none-such'"),
    (["--quantity", "mood"], "mood"), (["--quantity", "kernel_time"], "columns"),
])
def test_wrong_options_are_one_clear_line(predict_time, table, arguments, words):
    result = predict_time("evaluate", table, *arguments)
    assert result.code == 2
    assert words in result.err
    assert result.out == ""


def test_a_missing_table_is_wrong_input(predict_time, tmp_path):
    result = predict_time("evaluate", tmp_path / "none.csv")
    assert (result.code, result.out) == (2, "")
    assert "none.csv" in result.err
