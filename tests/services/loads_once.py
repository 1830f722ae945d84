"""Loads the first time, never again: leaves a mark in its temporary folder. Answers ``here``."""

import os
import pathlib


def handle(data, context):
    if data is None:
        mark = pathlib.Path(os.environ["TMPDIR"]) / f"{context.model_name}.mark"
        if mark.exists():
            raise OSError("its disk is gone")
        mark.touch()
        return None
    return ["here" for _ in data]
