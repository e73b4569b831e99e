"""Predict the step time and the memory of a distributed training job before it is launched."""
