"""Keeps 20 MB for every request that says ``leak``; answers the process id of its worker."""

import os

kept = []


def handle(data, context):
    if data is None:
        return None
    wishes = [row.get("data") or row.get("body") for row in data]
    kept.extend(b"x" * 20_000_000 for wish in wishes if wish == "leak")
    return [str(os.getpid()) for _ in data]
