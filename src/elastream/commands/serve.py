"""`elastream serve`: look at a recording as at a run, and what the commands that serve have in common."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastream.as_json import print_json
from elastream.commands.shared import JsonOption, err, out

if TYPE_CHECKING:
    from elastream.web.server import Server

_LOOK_EVERY_S = 0.5

PortOption = Annotated[
    int,
    typer.Option(min=0, max=65_535, help="Of the page and its API; where it is in use the next, 0 for any."),
]
HostOption = Annotated[str, typer.Option(help="The address to serve on; by default only this machine reaches it.")]
KnownAsOption = Annotated[
    list[str] | None,
    typer.Option("--known-as", help="A further name that the server goes by, with --host; repeatable."),
]


def serve(
    recording: Annotated[Path, typer.Argument(help="A recording (JSON lines), finished or still being written.")],
    port: PortOption = 8765,
    host: HostOption = "127.0.0.1",
    known_as: KnownAsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a recording in the browser, and what is added to it, until Ctrl-C.

    The same page and the same API as those of a run, without actions: nobody listens.
    """
    from elastream.web.feed import Feed
    from elastream.web.following import Followed, go_on, load
    from elastream.web.server import Address, Server
    from elastream.web.views import ConfigurationView

    name = recording.parent.absolute().name if recording.stem == "recording" else recording.stem
    feed, followed = Feed(name), Followed(recording)
    load(followed, feed)
    if feed.history.window is None:
        err.print(f"{recording}: nothing was recorded yet; what comes is shown", soft_wrap=True)
    elif followed.cut_off:
        err.print(f"{recording}: the last line is cut off, or still being written", soft_wrap=True)
    shown = ConfigurationView(pipeline=name, shown="recording", policy=None, options=(), knobs=(), acts=False)
    address = Address(host=host, port=port, names=tuple(known_as or ()))
    with Server(feed, shown, address) as server:
        tell(server, asked=port, as_json=as_json)
        while not threading.Event().wait(_LOOK_EVERY_S):
            go_on(followed, feed)


def tell(server: Server, *, asked: int, as_json: bool = False) -> None:
    """Say where to look."""
    if server.moved:
        err.print(f"port {asked} is in use, so it is {server.port}")
    if as_json:
        print_json({"url": server.url})
    else:
        out.print(f"page: {server.url}", soft_wrap=True)
