"""A forecaster as a plain dictionary, for the manager's store: it goes on after a restart where it was."""

from __future__ import annotations

import base64
import logging
import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PlainSerializer, PlainValidator

from elastream.errors import InvalidInput, shown
from elastream.forecast.forecaster import JUDGED, Forecaster
from elastream.forecast.history import MOST_SLOTS, Floats, History
from elastream.forecast.model import HORIZONS, Fit, features_with
from elastream.formats import Strict, parse

_log = logging.getLogger(__name__)

VERSION = 1
"""Higher once what was saved before could no longer be made sense of."""


_Season = Annotated[int, Field(gt=0)]


class _SavedFit(Strict):
    seasons: list[_Season]
    weights: list[float]
    least: float
    most: float


class _Saved(Strict):
    version: int
    step_s: float | None = Field(gt=0)
    first: int
    rates: str
    unseen: list[int]
    in_last: int = Field(ge=0)
    at_s: float | None
    last: float = Field(ge=0)
    early: list[list[float]]
    seasons: list[_Season]
    fits: list[_SavedFit | None] = Field(min_length=len(HORIZONS), max_length=len(HORIZONS))
    tried: list[int | None] = Field(min_length=len(HORIZONS), max_length=len(HORIZONS))
    made: list[str] = Field(min_length=len(HORIZONS), max_length=len(HORIZONS))


def forecaster_to_dict(forecaster: Forecaster) -> dict[str, Any]:
    """As JSON can hold it; rates are rounded to single precision."""
    history = forecaster.history
    return _Saved(
        version=VERSION,
        step_s=history.step_s,
        first=history.first,
        rates=_packed(history.rates),
        unseen=np.flatnonzero(~history.seen).tolist(),
        in_last=history.in_last,
        at_s=history.at_s if math.isfinite(history.at_s) else None,
        last=history.last,
        early=[list(one) for one in history.early],
        seasons=list(forecaster.seasons),
        fits=[None if fit is None else _saved_fit(fit) for fit in forecaster.fits],
        tried=[int(at) if math.isfinite(at) else None for at in forecaster.tried],
        made=[_packed(row) for row in forecaster.made],
    ).model_dump()


def forecaster_from_dict(data: Any, place: str = "forecaster") -> Forecaster:
    """The inverse; what another version saved, or what is broken, is refused with what was found."""
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise InvalidInput(
            f"{place}: version {VERSION} was expected, found {shown(version)}; it has to learn anew"
        )
    saved = parse(_Saved, data, place)
    try:
        return _restored(saved)
    except (ValueError, IndexError) as error:
        raise InvalidInput(f"{place}: not what was saved: {error}") from None


def _or_anew(data: Any) -> Forecaster:
    """Of another version or broken: it learns anew, and nothing else is lost by it."""
    if isinstance(data, Forecaster):
        return data
    try:
        return forecaster_from_dict(data)
    except InvalidInput as error:
        _log.warning("%s", error)
        return Forecaster()


Saved = Annotated[Forecaster, PlainValidator(_or_anew), PlainSerializer(forecaster_to_dict)]
"""A forecaster as a field of what is kept as JSON."""


def _restored(saved: _Saved) -> Forecaster:
    rates = _unpacked(saved.rates, MOST_SLOTS)
    if not (np.isfinite(rates).all() and (rates >= 0).all()):
        raise ValueError("a rate is not a finite number of at least 0")
    seen = np.ones(len(rates), dtype=np.bool_)
    seen[saved.unseen] = False
    return Forecaster(
        history=History(
            step_s=saved.step_s,
            first=saved.first,
            rates=rates,
            seen=seen,
            in_last=saved.in_last,
            at_s=-math.inf if saved.at_s is None else saved.at_s,
            last=saved.last,
            early=tuple((at_s, rate) for at_s, rate in saved.early),
        ),
        seasons=tuple(saved.seasons),
        fits=tuple(None if fit is None else _fit(fit) for fit in saved.fits),
        tried=tuple(-math.inf if at is None else at for at in saved.tried),
        made=np.array([_unpacked(row, JUDGED) for row in saved.made]),
    )


def _saved_fit(fit: Fit) -> _SavedFit:
    weights = fit.weights.tolist()
    return _SavedFit(seasons=list(fit.seasons), weights=weights, least=fit.least, most=fit.most)


def _fit(saved: _SavedFit) -> Fit:
    weights = np.array(saved.weights)
    if len(weights) != features_with(len(saved.seasons)) or not np.isfinite(weights).all():
        raise ValueError(f"a fit has {len(weights)} weights, of other features")
    return Fit(seasons=tuple(saved.seasons), weights=weights, least=saved.least, most=saved.most)


def _packed(values: Floats) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def _unpacked(text: str, most: int) -> Floats:
    values = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(float)
    if len(values) > most:
        raise ValueError(f"at most {most} numbers were expected, found {len(values)}")
    return values
