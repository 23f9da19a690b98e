"""What will arrive at a source: forecasts, trusted as far as they have earned, and what people know ahead."""

from elastream.forecast.calendar import NO_CALENDAR, Calendar
from elastream.forecast.forecaster import Forecast, Forecaster
from elastream.forecast.trust import Score

__all__ = ["NO_CALENDAR", "Calendar", "Forecast", "Forecaster", "Score"]
