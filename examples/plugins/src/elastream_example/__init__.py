"""A policy and an engine for elastream, as a package of someone else."""
