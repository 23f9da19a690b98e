"""The quantities of an operator that are shown: on the page, on charts and to Prometheus.

Each is declared where it is measured or computed (`quantity.py`); this only gathers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elastream.measurement.flow import flow
from elastream.measurement.measurement import Measurement
from elastream.measurement.quantity import Combine, Quantity, declared_in
from elastream.measurement.reading import QUANTITIES
from elastream.measurement.snapshot import Snapshot

_REQUIRED = "required_per_s"
_OF_OPERATOR = declared_in(Measurement)
_OF_GRAPH = {
    _REQUIRED: Quantity(
        "records per second that it must process for the sources' rates to be sustained",
        windows=Combine.MEAN,
        gauge="required_records_per_second",
    )
}

OPERATOR_QUANTITIES: Final[Mapping[str, Quantity]] = {
    name: quantity for name, quantity in {**_OF_OPERATOR, **_OF_GRAPH, **QUANTITIES}.items() if quantity.is_shown
}


def values_of(snapshot: Snapshot, name: str) -> Mapping[str, float | None]:
    """What was measured of an operator, for each quantity that is shown."""
    measured = snapshot.measurements.get(name)
    found = dict.fromkeys(OPERATOR_QUANTITIES) if measured is None else _measured(measured)
    return {**found, _REQUIRED: flow(snapshot).required_per_s.get(name)}


def _measured(measured: Measurement) -> dict[str, float | None]:
    return {
        quantity: getattr(measured if quantity in _OF_OPERATOR else measured.totals, quantity, None)
        for quantity in OPERATOR_QUANTITIES
    }
