"""`elastream forecast`: what is coming, and how good that would have been so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from elastream.commands import console
from elastream.commands.as_json import print_json
from elastream.commands.recordings import rates_in
from elastream.commands.shared import JsonOption, out
from elastream.durations import seconds
from elastream.durations import text as duration_text
from elastream.errors import InvalidInput
from elastream.forecast.calendar import Calendar
from elastream.forecast.calendar_format import read_calendar
from elastream.forecast.forecaster import Forecaster
from elastream.forecast.hindsight import Hindsight, in_hindsight
from elastream.texts import rate_text

_HORIZONS = ("1 min", "5 min", "15 min", "30 min", "60 min")


def forecast(
    recording: Annotated[
        Path,
        typer.Argument(
            metavar="RECORDING",
            help="A recording (JSON lines), the folder of a run, or a trace (.csv with time_s and records_per_s).",
        ),
    ],
    horizon: Annotated[
        list[str] | None,
        typer.Option(metavar="DURATION", help=f"How far ahead; repeatable. [default: {', '.join(_HORIZONS)}]"),
    ] = None,
    quantile: Annotated[
        float,
        typer.Option(
            min=0.5, max=0.999, metavar="SHARE", help="The rate is not above 'at most' with this probability."
        ),
    ] = 0.9,
    calendar: Annotated[
        Path | None, typer.Option(help="Known events in YAML, which raise or lower what is expected.")
    ] = None,
    ignore_cut_off: Annotated[
        bool, typer.Option("--ignore-cut-off", help="Leave out a last line that was cut off.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """What rate is coming to each source, and how good such forecasts were over the recording.

    The recorded rates are handed to the forecaster one by one, as a manager would do; nothing is looked ahead.
    *Error* is how far its forecasts were off, *last value* how far it is off to expect the present rate to stay.
    *Trusted* says how much of the expected change is believed: as much as it gained over the last value lately.
    Where nothing was gained that is 0 %, and what is expected is the last value. Seasons (a day, a week, others)
    are found once they were seen almost one and a half times.

    Example: `elastream forecast out/visits --horizon '10 min'`
    """
    horizons_s = [_duration(text) for text in horizon or _HORIZONS]
    known = Calendar() if calendar is None else read_calendar(calendar)
    answers = [
        _answer(source, rates, horizons_s, quantile, known)
        for source, rates in rates_in(recording, ignore_cut_off=ignore_cut_off).items()
    ]
    if as_json:
        print_json({"quantile": quantile, "sources": answers})
        return
    for answer in answers:
        _print(answer, quantile)


def _duration(text: str) -> float:
    try:
        found_s = seconds(text)
    except ValueError as error:
        raise InvalidInput(f"--horizon: {error}") from None
    if found_s <= 0:
        raise InvalidInput(f"--horizon: more than 0 was expected, found {text}")
    return found_s


def _answer(
    source: str,
    rates: Sequence[tuple[float, float]],
    horizons_s: Sequence[float],
    quantile: float,
    calendar: Calendar,
) -> dict[str, Any]:
    forecaster, found = in_hindsight(rates, horizons_s, quantile)
    return {
        "source": source,
        "rates": len(rates),
        "at_s": rates[-1][0],
        "spans_s": rates[-1][0] - rates[0][0],
        "records_per_s": rates[-1][1],
        "seasons_s": list(forecaster.seasons_s),
        "horizons": [_horizon(one, source, forecaster, quantile, calendar) for one in found],
    }


def _horizon(
    found: Hindsight, source: str, forecaster: Forecaster, quantile: float, calendar: Calendar
) -> dict[str, Any]:
    said, now_s = found.forecast, forecaster.history.at_s
    at_s = now_s + said.horizon_s

    def expected(rate: float) -> float:
        return calendar.expected(rate, last=said.last, source=source, now_s=now_s, at_s=at_s)

    return {
        "horizon_s": said.horizon_s,
        "expected_per_s": expected(said.median),
        "at_most_per_s": expected(said.quantile(quantile)),
        "events": [event.name for event in calendar.events_at(at_s, source)] if calendar.events else [],
        "trusted": said.score.share,
        "judged": found.judged,
        "error": found.error,
        "last_value_error": found.last_value_error,
        "above_at_most": found.above,
    }


def _print(answer: dict[str, Any], quantile: float) -> None:
    at_most = f"at most\n({quantile:.0%})"
    table = console.number_table("ahead", "expected", at_most, "trusted", "error", "last\nvalue", "judged")
    for row in answer["horizons"]:
        table.add_row(
            duration_text(row["horizon_s"]),
            rate_text(row["expected_per_s"]),
            rate_text(row["at_most_per_s"]),
            f"{row['trusted']:.0%}",
            _share(row["error"]),
            _share(row["last_value_error"]),
            f"{row['judged']:,}",
        )
    now, spans = rate_text(answer["records_per_s"]), duration_text(answer["spans_s"])
    console.print_table(out, f"{answer['source']}: {now} now, after {spans}", table)
    seasons = ", ".join(duration_text(season_s) for season_s in answer["seasons_s"])
    out.print(f"seasons: {seasons or 'none found'}")
    for row in answer["horizons"]:
        for event in row["events"]:
            out.print(Text(f"in {duration_text(row['horizon_s'])}: {event} (calendar)"))


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.1%}"
