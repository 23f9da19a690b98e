"""Figures with panels beside each other, for experiments that repeat themselves over several queries or laws."""

from __future__ import annotations

from typing import Any


def new_panels(
    rows: int, columns: int, *, title: str, width: float = 3.4, height: float = 2.6, **subplots: Any
) -> tuple[Any, Any]:
    """A figure and its panels, as an array of rows and columns; each panel as large as is said, in inches."""
    from matplotlib.figure import Figure  # slow to import, and most commands draw nothing

    figure = Figure(figsize=(width * columns, height * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **subplots)
    figure.suptitle(title)
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes
