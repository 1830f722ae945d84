"""Answers with the environment variable that the body names, or ``not set``."""

import os


def handle(data, context):
    if data is None:
        return None
    return [os.environ.get(str(row.get("body")), "not set") for row in data]
