"""Tasks: what a model is asked and what it answers, one module a task, imported on use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from marserve.handlers.tasks.base import Task

TASKS = {
    "sequence_classification": "marserve.handlers.tasks.sequence_classification",
    "token_classification": "marserve.handlers.tasks.token_classification",
    "question_answering": "marserve.handlers.tasks.question_answering",
    "text_generation": "marserve.handlers.tasks.text_generation",
    "fill_mask": "marserve.handlers.tasks.fill_mask",
    "zero_shot_classification": "marserve.handlers.tasks.zero_shot_classification",
    "image_classification": "marserve.handlers.tasks.image_classification",
    "automatic_speech_recognition": "marserve.handlers.tasks.speech_recognition",
    "summarization": "marserve.handlers.tasks.summarization",
    "translation": "marserve.handlers.tasks.translation",
    "feature_extraction": "marserve.handlers.tasks.feature_extraction",
    "sentence_similarity": "marserve.handlers.tasks.sentence_similarity",
}


def find_task(name: str) -> type[Task[Any]]:
    """Imports a task; its module names the class as ``TASK``.

    Args:
        name: A key of ``TASKS``.

    Raises:
        KeyError: If there is no such task.
    """
    task: type[Task[Any]] = import_module(TASKS[name]).TASK
    return task
