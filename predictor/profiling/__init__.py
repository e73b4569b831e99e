"""The harness that measures kernels, collectives, layers and whole steps."""
