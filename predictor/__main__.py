"""Lets ``python -m predictor`` do what ``predict-time`` does."""

from predictor.cli.main import main

main()
