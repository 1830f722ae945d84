"""Starts a thread while it is imported, so its workers cannot be forked; answers ``alive``."""

import threading

EVENT = threading.Event()
threading.Thread(target=EVENT.wait, daemon=True).start()


def handle(data, context):
    if data is None:
        return None
    return ["alive" for _ in data]
