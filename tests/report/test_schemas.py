"""Published schemas are the ones the code makes, and real documents obey them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import gpt, job
from pydantic import TypeAdapter

from predictor.report.schemas import SCHEMAS, EvaluateDocument, StepDocument, schema
from predictor.spec.strategy import Strategy
from predictor.step.document import document
from predictor.step.predict import predict_step
from predictor.training.evaluate import evaluate

FOLDER = Path(__file__).parents[2] / "data" / "schemas"
CITED = Path(__file__).parents[1] / "step" / "cited_steps.csv"


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_published_schema_is_up_to_date(name):
    published = (FOLDER / f"{name}.schema.json").read_text(encoding="utf-8")
    assert published == schema(name), "run: python -m predictor.report.schemas data/schemas"


@pytest.mark.parametrize("strategy", [
    Strategy(), Strategy(tp=2, pp=4), Strategy(ep=8), Strategy(zero_stage=1, recompute="full")])
def test_a_step_obeys_its_schema(strategy):
    experts = {"num_experts": 8, "moe_router_topk": 2} if strategy.ep > 1 else {}
    made = document(predict_step(job(gpt(**experts)), strategy), version="0.0")
    TypeAdapter(StepDocument).validate_json(json.dumps(made, allow_nan=False), strict=True)


def test_an_evaluation_obeys_its_schema():
    made = evaluate(CITED, group_by="citation").document()
    TypeAdapter(EvaluateDocument).validate_json(json.dumps(made, allow_nan=False), strict=True)
