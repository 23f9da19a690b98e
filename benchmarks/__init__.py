"""How fast elastream is, printed as ratios: `python -m benchmarks`, or `python -m benchmarks NAME` for one.

Ratios are taken between things that were measured in the same run, so that they say the same on every machine.
"""
