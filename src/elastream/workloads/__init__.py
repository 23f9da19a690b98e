"""Pipelines and load that the experiments and the examples use."""
