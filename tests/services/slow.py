"""Takes as long as the bodies ask for, in seconds: the sum over the batch; answers ``slept 0.5``.

An empty or other body takes no time. Also prints a line before and after on stdout, for the logs.
"""

import time


def handle(data, context):
    if data is None:
        return None
    print(f"batch of {len(data)} begins", flush=True)
    wishes = [seconds(row.get("data") or row.get("body")) for row in data]
    time.sleep(sum(wishes))
    print(f"batch of {len(data)} ends", flush=True)
    return [f"slept {wish:g}" for wish in wishes]


def seconds(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
