"""Run a command that ends when its parent does, also when that is killed: the parent holds our standard input.

    python with_parent.py COMMAND...

A JVM does not notice that nobody needs it any more; this process does, when its input ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

_STOP_TIMEOUT_S = 5.0  # a kill loses nothing either


def main(command: list[str]) -> None:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=lambda: os._exit(process.wait()), daemon=True).start()
    sys.stdin.buffer.read()
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
