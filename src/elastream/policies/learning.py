"""How new measurements are put together with earlier ones of the same configuration."""

from __future__ import annotations

NEW_WEIGHT = 0.3
"""Of a new measurement against what the earlier ones gave."""
CHANGED = 0.3
"""A relative difference that noise does not explain: what was learned before is out of date."""
