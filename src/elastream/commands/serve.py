"""`elastream serve`, and how `run` and `simulate` serve what they do: a page, its API and Prometheus."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer

from elastream.accepting import is_loopback, server_tls
from elastream.commands.as_json import print_json
from elastream.commands.recordings import RecordingArgument, name_of, recording_at
from elastream.commands.settings import ChosenPolicy
from elastream.commands.shared import JsonOption, err
from elastream.commands.signature import from_options
from elastream.dataflow import Dataflow
from elastream.extras import missing
from elastream.manager.inbox import Inbox
from elastream.policies.by_rules import Rules
from elastream.web.address import DEFAULT_PORT, LOOPBACK, TOKEN_VARIABLE, Address

if TYPE_CHECKING:
    from elastream.web.feed import Feed
    from elastream.web.server import Server

_LOOK_EVERY_S = 0.5

PageTokensOption = Annotated[
    Path | None,
    typer.Option(
        help="A file with the tokens of who may look at the page, and of who may act; read again when changed."
    ),
]


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Where the page and its API are served."""

    PANEL: ClassVar = "Page"

    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            help="Of the page and its API; where it is in use the next, 0 for any.",
        ),
    ] = DEFAULT_PORT
    host: Annotated[
        str, typer.Option(help="The address to serve on; by default only this machine reaches it.")
    ] = LOOPBACK
    known_as: Annotated[
        list[str] | None,
        typer.Option("--known-as", help="A further name that the server goes by, with --host; repeatable."),
    ] = None

    tls_certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", "--tls-cert", help="Serve by https, with this certificate (PEM)."),
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key, where that is in a file of its own.")] = None
    page_tokens: PageTokensOption = None

    def address(self) -> Address:
        tls = server_tls(self.tls_certificate, self.tls_key)
        if not is_loopback(self.host):
            lacking = [
                *(["nothing is encrypted (--tls-certificate)"] if tls is None else []),
                *(["everyone who reaches it can look (--page-tokens)"] if self.page_tokens is None else []),
            ]
            if lacking:
                reach = f"others than this machine can reach {self.host}"
                err.print(f"{reach}, and {' and '.join(lacking)}", soft_wrap=True)
        return Address(
            host=self.host, port=self.port, names=tuple(self.known_as or ()), tls=tls, tokens=self.page_tokens
        )


@from_options
def serve(
    recording: RecordingArgument,
    page: PageOptions,
    as_json: JsonOption = False,
) -> None:
    """Show a recording in the browser, and what is added to it, until Ctrl-C.

    It may be finished or still being written; the folder of a run stands for the recording in it. The same page
    and the same API as those of a run, without actions: nobody listens.

    Example: `elastream serve out/visits`
    """
    from elastream.showing.views import ConfigurationView
    from elastream.web.feed import Feed
    from elastream.web.following import Followed, go_on, load
    from elastream.web.server import Server
    from elastream.web.tokens import Tokens

    recording = recording_at(recording)
    name = name_of(recording)
    feed, followed = Feed(name), Followed(recording)
    load(followed, feed)
    if feed.history.window is None:
        err.print(f"{recording}: nothing was recorded yet; what comes is shown", soft_wrap=True)
    elif followed.cut_off:
        err.print(f"{recording}: the last line is cut off, or still being written", soft_wrap=True)
    shown = ConfigurationView(pipeline=name, shown="recording", policy=None, options=(), knobs=(), acts=False)
    address = page.address()
    with Server(feed, shown, address, tokens=Tokens(file=address.tokens)) as server:
        _tell(server, address)
        if as_json:
            print_json({"url": server.url})
        _until_interrupted(lambda: go_on(followed, feed))


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a command that serves its run shows of it."""

    pipeline: str
    kind: Literal["run", "simulation"]
    engine: str
    chosen: ChosenPolicy
    dataflow: Dataflow | None
    """None where operators come and go, so that rules for any are taken."""


@contextmanager
def serving(shown: Shown, address: Address, wake: Callable[[], None]) -> Iterator[tuple[Feed, Inbox]]:
    """Serve a run while it lasts: what it does goes into the feed, what people ask for comes out of the inbox."""
    from elastream.showing.as_views import option_views
    from elastream.showing.views import ConfigurationView
    from elastream.web.actions import Acting
    from elastream.web.feed import Feed
    from elastream.web.rules_file import RulesFile
    from elastream.web.server import Server
    from elastream.web.tokens import Tokens

    policy, knobs = shown.chosen.policy, shown.chosen.knobs
    rules = policy.file if isinstance(policy, Rules) and policy.file else None
    configuration = ConfigurationView(
        pipeline=shown.pipeline,
        shown=shown.kind,
        policy=shown.chosen.name,
        options=option_views(policy),
        knobs=option_views(knobs),
        rules_file=rules,
        acts=True,
    )
    feed, inbox = Feed(shown.pipeline), Inbox(wake)
    acting = Acting(
        inbox=inbox,
        rules=None if rules is None else RulesFile(path=Path(rules), dataflow=shown.dataflow),
    )
    feed.begin(shown.chosen.header(shown.pipeline, shown.engine))
    known = os.environ.get(TOKEN_VARIABLE)
    drawn = None if known or address.tokens else secrets.token_urlsafe(24)
    with Server(
        feed, configuration, address, acting=acting, tokens=Tokens(known or drawn, file=address.tokens)
    ) as server:
        _tell(server, address, drawn=drawn)
        yield feed, inbox


def can_serve() -> bool:
    """For a command that is of use without a page, too: where it is left out, why is said."""
    if (lacks := missing("web")) is not None:
        err.print(f"no page: {lacks}", soft_wrap=True)
    return lacks is None


def show_until_interrupted() -> None:
    """What was run is over; Ctrl-C then is no failure."""
    err.print("the run has ended; Ctrl-C ends showing it")
    _until_interrupted(lambda: None)


def _until_interrupted(look: Callable[[], None]) -> None:
    with suppress(KeyboardInterrupt):
        while not threading.Event().wait(_LOOK_EVERY_S):
            look()


def _tell(server: Server, address: Address, *, drawn: str | None = None) -> None:
    """Say where to look; on standard error, as standard output is for what was asked for.

    A token that was drawn is said this once, and nowhere else; one that was given is known.
    """
    if server.moved:
        err.print(f"port {address.port} is in use, so the page is on {server.port}")
    where = server.url if drawn is None else f"{server.url}#token={drawn}"
    err.print(f"page: {where}", soft_wrap=True, highlight=False)
    if address.tokens is not None:
        err.print(f"who may look, and who act: {address.tokens}", soft_wrap=True, highlight=False)
