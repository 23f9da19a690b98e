"""Pipelines and load that only the experiments use."""
