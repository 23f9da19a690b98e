"""From where on a measurement means something: each of these has one value, whoever asks."""

from __future__ import annotations

BUSY = 0.9
"""Of the window: an instance that works for longer has no room left."""
HELD_BACK = 0.05
"""Of the window: an operator that waits for those after it for longer is held back by them."""
NO_CORE = 0.15
"""Of the time that an operator wants a core: when it has none for longer, the cores are all in use."""
STANDING = 0.5
"""Of what is processed in a window: a smaller backlog comes and goes."""
