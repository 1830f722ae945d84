"""Ends the worker's process on demand.

Body ``sys`` calls ``sys.exit(3)``; ``hard`` ends at once with ``os._exit(3)``; ``kill`` sends
itself SIGKILL, as the kernel does when memory is out; ``pid`` answers the
process's id; else ``alive``.
"""

import os
import signal
import sys


def handle(data, context):
    if data is None:
        return None
    return [answer(row.get("data") or row.get("body")) for row in data]


def answer(value):
    wish = value.decode() if isinstance(value, (bytes, bytearray)) else value
    if wish == "sys":
        sys.exit(3)
    if wish == "hard":
        os._exit(3)
    if wish == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return str(os.getpid()) if wish == "pid" else "alive"
