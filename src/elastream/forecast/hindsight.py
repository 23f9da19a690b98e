"""How good forecasts would have been over rates that were recorded: each is judged by what then came."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from elastream.forecast.forecaster import Forecast, Forecaster


@dataclass(frozen=True, kw_only=True)
class Hindsight:
    """Of one horizon."""

    forecast: Forecast
    """The newest, which nothing has judged yet."""
    judged: int = 0
    error: float | None = None
    """SMAPE as a share: the mean of the absolute errors, each over the mean of what was said and what came."""
    last_value_error: float | None = None
    above: float | None = None
    """The share of the rates that came to be above the quantile."""


@dataclass
class _Account:
    horizon_s: float
    due: deque[tuple[float, Forecast]]
    errors: list[tuple[float, float, bool]]


def in_hindsight(
    rates: Sequence[tuple[float, float]], horizons_s: Sequence[float], quantile: float
) -> tuple[Forecaster, tuple[Hindsight, ...]]:
    """The forecaster after times and rates, and for each horizon what it says and how good it was on the way."""
    forecaster = Forecaster()
    accounts = [_Account(horizon_s=horizon_s, due=deque(), errors=[]) for horizon_s in horizons_s]
    for at_s, rate in rates:
        for account in accounts:
            _settle(account, at_s, rate, quantile)
        forecaster = forecaster.observed(at_s, rate)
        for account in accounts:
            account.due.append((at_s + account.horizon_s, forecaster.forecast(account.horizon_s)))
    return forecaster, tuple(_hindsight(account, forecaster) for account in accounts)


def _settle(account: _Account, at_s: float, rate: float, quantile: float) -> None:
    """A forecast is judged by the first rate at or after its time, unless that comes much later: a gap."""
    while account.due and account.due[0][0] <= at_s:
        due_s, said = account.due.popleft()
        if at_s - due_s <= 0.5 * account.horizon_s:
            above = rate > said.quantile(quantile)
            account.errors.append((_error(said.median, rate), _error(said.last, rate), above))


def _error(said: float, came: float) -> float:
    return 2 * abs(said - came) / (said + came) if said + came > 0 else 0.0


def _hindsight(account: _Account, forecaster: Forecaster) -> Hindsight:
    newest = forecaster.forecast(account.horizon_s)
    if not account.errors:
        return Hindsight(forecast=newest)
    ours, last_value, above = zip(*account.errors, strict=True)
    return Hindsight(
        forecast=newest, judged=len(ours), error=mean(ours), last_value_error=mean(last_value), above=mean(above)
    )
