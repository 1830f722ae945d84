"""Tasks: what a model is asked and what it answers, one module a task, imported on use."""

from __future__ import annotations

from importlib import import_module

from marserve.handlers.tasks.base import Task

TASKS = {
    "sequence_classification": "marserve.handlers.tasks.sequence_classification",
    "token_classification": "marserve.handlers.tasks.token_classification",
    "question_answering": "marserve.handlers.tasks.question_answering",
    "text_generation": "marserve.handlers.tasks.text_generation",
}


def find_task(name: str) -> type[Task]:
    """Imports a task; its module names the class as ``TASK``.

    Args:
        name: A key of ``TASKS``.

    Raises:
        KeyError: If there is no such task.
    """
    task: type[Task] = import_module(TASKS[name]).TASK
    return task
