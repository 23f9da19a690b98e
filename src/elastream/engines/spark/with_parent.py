"""Run a command that ends when its parent does, also when that is killed: the parent holds our standard input.

    python with_parent.py COMMAND...

A JVM does not notice that nobody needs it any more; this process does, when its input ends. Its status is that of
the command, as in a shell: 128 and the number of the signal that ended it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

_STOP_TIMEOUT_S = 5.0  # a kill loses nothing either


def main(command: list[str]) -> None:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    threading.Thread(target=lambda: os._exit(_status(process.wait())), daemon=True).start()
    sys.stdin.buffer.read()
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main(sys.argv[1:])
