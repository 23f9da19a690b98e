"""Ports of this machine for the processes that are started on it, and whether anyone answers at a master's."""

from __future__ import annotations

import os
import re
import socket

from elastream.errors import ElastreamError, InvalidInput

_MASTER_TIMEOUT_S = 10.0
_YARN_SETTINGS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def free_port(host: str) -> int:
    """Some port that nobody listens on now."""
    return checked_port(host, 0, "a port")


def checked_port(host: str, port: int, option: str) -> int:
    """The port, or for 0 one that is free; refused if someone has it, where Spark would quietly take the next."""
    if not 0 <= port <= 65535:
        raise InvalidInput(f"{option} must be from 0 to 65535, found {port}")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ElastreamError(
                f"port {port} of {host} cannot be used ({error.strerror}): choose another with {option}, "
                "or 0 for any that is free"
            ) from None
        return int(probe.getsockname()[1])


def check_answers(master: str) -> None:
    """Spark tries for a minute to reach a standalone master, and says little; without YARN's settings it fails."""
    if master == "yarn" and not any(os.environ.get(name) for name in _YARN_SETTINGS):
        raise ElastreamError(
            f"--master yarn: {' or '.join(_YARN_SETTINGS)} was expected in the environment, the folder of the "
            "cluster's settings (yarn-site.xml, core-site.xml)"
        )
    addresses = re.findall(r"([^/,:]+):(\d+)", master) if master.startswith("spark://") else []
    refused = []
    for host, port in addresses:  # a master may have others standing by
        try:
            socket.create_connection((host, int(port)), timeout=_MASTER_TIMEOUT_S).close()
            return
        except OSError as error:
            refused.append(f"{host}:{port} {error.strerror or error}")
    if refused:
        raise ElastreamError(
            f"{master}: no Spark master answers there ({'; '.join(refused)}); `elastream cluster start` starts one"
        )
