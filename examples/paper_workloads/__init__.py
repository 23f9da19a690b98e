"""Workloads of papers, with their recorded data: for the examples beside this folder and for experiments."""
