"""Gesscale's performance model: what an operator sustains, learned from what it did at its limit."""
