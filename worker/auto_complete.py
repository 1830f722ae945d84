"""A process that asks a Triton Python model to complete its configuration, and ends."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from marserve.handlers.triton.configuration import ModelConfig
from marserve.handlers.triton.python_model import load_class
from marserve.worker import compat
from marserve.worker.redaction import without_paths


def main(folder: str, file: str) -> None:
    """Reads a configuration from standard input and writes the completed one, as JSON.

    Args:
        folder: Of the model.
        file: Below it, the model's code.
    """
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the model prints is no part of the answer
    config = ModelConfig(json.load(sys.stdin))
    compat.activate()
    os.chdir(folder)
    try:
        completed = load_class(Path(folder), file).auto_complete_config(config)
        found = {"config": (config if completed is None else completed).as_dict()}
        text = json.dumps(found)
    except Exception as error:
        traceback.print_exc()
        text = json.dumps({"error": without_paths(f"{type(error).__name__}: {error}", folder)})
    with answer:
        answer.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
