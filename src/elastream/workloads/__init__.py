"""Pipelines on Spark that the examples run, and the processes that write to their feeds."""
