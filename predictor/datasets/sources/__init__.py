"""Readers of published kernel measurements, one module per source.

Each has ``read(folder)``, which takes the folder in the publisher's own layout and returns the
tidy table of :mod:`predictor.datasets.kernel_schema`.
"""
