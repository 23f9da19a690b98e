"""Who may speak to a master: a shared token, TLS where certificates are given, loopback unless told otherwise."""

from __future__ import annotations

import logging
import os
import ssl
import stat
from pathlib import Path

from elastream.accepting import is_loopback, tls_reason
from elastream.errors import InvalidInput
from elastream.formats import read_text

_log = logging.getLogger(__name__)

TOKEN_VARIABLE = "ELASTREAM_TOKEN"
_MOST_TOKEN_BYTES = 500


def read_token(file: Path | None) -> str:
    """From the file, else from the environment, else none. An option is seen by every user of the machine."""
    token = os.environ.get(TOKEN_VARIABLE, "") if file is None else read_text(file).strip()
    where = TOKEN_VARIABLE if file is None else str(file)
    if file is not None and file.stat().st_mode & stat.S_IROTH:
        _log.warning("%s: everyone on this machine may read the token in it: chmod 600 keeps it to you", file)
    if file is not None and not token:
        raise InvalidInput(f"{where}: a token was expected, found nothing")
    if len(token.encode()) > _MOST_TOKEN_BYTES:
        raise InvalidInput(
            f"{where}: a token has at most {_MOST_TOKEN_BYTES} bytes, found {len(token.encode()):,}"
        )
    return token


def check_exposure(host: str, token: str, tls: ssl.SSLContext | None) -> str | None:
    """Refuse to listen to the network without a token; without TLS it is worth a warning, which this gives."""
    if is_loopback(host):
        return None
    if not token:
        raise InvalidInput(
            f"--host {host} is open to the network: give a token, with --token-file or in {TOKEN_VARIABLE}"
        )
    return (
        None if tls is not None else f"{host} is open to the network, and without TLS the token can be overheard"
    )


def agent_tls(authority: Path | None) -> ssl.SSLContext | None:
    """Trust masters whose certificate this authority has signed, or is."""
    if authority is None:
        return None
    try:
        return ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{authority}: not a certificate to trust: {tls_reason(error)}") from None
