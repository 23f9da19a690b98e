"""What a policy expects of a source, and how far such forecasts were right: to be shown, recorded and exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from elastream.measurement.quantity import Combine, Quantity, declared_in


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    source: str
    ahead_s: Annotated[float, Quantity("how far ahead what is expected lies", gauge="expected_ahead_seconds")]
    expected_per_s: Annotated[
        float,
        Quantity(
            "records per second that are expected", windows=Combine.MEAN, gauge="expected_records_per_second"
        ),
    ]
    at_most_per_s: Annotated[
        float,
        Quantity(
            "records per second that are prepared for: more is rare enough",
            windows=Combine.MEAN,
            gauge="prepared_records_per_second",
        ),
    ]
    trusted: Annotated[
        float, Quantity("the share of the forecast that is trusted", gauge="forecast_trusted_ratio")
    ]
    error: Annotated[
        float | None,
        Quantity(
            "the mean error of such forecasts as a share of the rate",
            windows=Combine.MEAN,
            gauge="forecast_error_ratio",
        ),
    ] = None
    """None before enough have come due."""
    last_value_error: Annotated[
        float | None,
        Quantity("the same of expecting no change", windows=Combine.MEAN, gauge="last_value_error_ratio"),
    ] = None


OUTLOOK_QUANTITIES = declared_in(Outlook)
