"""Calls of one pipeline joined: many requests are one call, and each has the answer of its own.

Pipelines shape their answers by what they were called with, a text or a list of one or of many. So
each call is made twice: once up to the point where the pipeline would run, to learn what it wants
run, and once more with the results of the joint run in place, so that the shape is its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from transformers import Pipeline

from marserve.handlers.mlserver.huggingface.calls import Call


class _Wanted(Exception):
    """What a call would run."""

    def __init__(self, inputs: Any, named: dict[str, Any]) -> None:
        super().__init__()
        self.inputs = inputs
        self.named = named


class Joinable(Pipeline):
    """Stands between a task's pipeline and the base that runs the model.

    Attributes:
        replies: What the next runs give; None where the model is to be run.
        looking: Whether a run is only to be told of.
    """

    replies: list[Any] | None = None
    looking: bool = False

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the model, or does instead what the attributes say."""
        if self.looking:
            raise _Wanted(inputs, kwargs)
        if self.replies:
            return self.replies.pop()
        run: Any = super().__call__
        return run(inputs, *args, **kwargs)


def joinable(kind: type[Pipeline]) -> type[Pipeline]:
    """Returns a class of pipelines that is the same and whose calls can be joined."""
    bases: tuple[Any, ...] = (kind, Joinable)
    return type(kind.__name__, bases, {})


def call_together(pipe: Any, calls: Sequence[Call]) -> list[Any]:
    """Returns the answer to each call, or the error in its place.

    Args:
        pipe: Of a class that ``joinable`` returned.
        calls: In order of arrival.
    """
    results: list[Any] = [None] * len(calls)
    groups: dict[str, list[tuple[int, Any]]] = {}
    for at, call in enumerate(calls):
        wanted = _look(pipe, call) if len(calls) > 1 else None
        if wanted is None or not _countable(wanted.inputs):
            groups[f"alone {at}"] = [(at, None)]
        else:
            key = json.dumps(wanted.named, sort_keys=True, default=repr)
            groups.setdefault(key, []).append((at, wanted))
    for group in groups.values():
        for at, answer in _run(pipe, calls, group):
            results[at] = answer
    return results


def _run(pipe: Any, calls: Sequence[Call], group: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    if len(group) > 1:
        try:
            return _joint(pipe, calls, group)
        except Exception:  # one of them is to blame: each has its own error, or answer
            pipe.replies = None
    return [(at, _try(pipe, calls[at])) for at, _ in group]


def _joint(pipe: Any, calls: Sequence[Call], group: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
    run: Any = Pipeline.__call__
    items: list[Any] = []
    for _, wanted in group:
        items += wanted.inputs if isinstance(wanted.inputs, list) else [wanted.inputs]
    found = run(pipe, items, **group[0][1].named)
    answers, begin = [], 0
    for at, wanted in group:
        many = isinstance(wanted.inputs, list)
        count = len(wanted.inputs) if many else 1
        own = found[begin : begin + count]
        begin += count
        pipe.replies = [own if many else own[0]]
        answers.append((at, _made(pipe, calls[at])))
    return answers


def _look(pipe: Any, call: Call) -> _Wanted | None:
    pipe.looking = True
    try:
        _made(pipe, call)
    except _Wanted as wanted:
        return wanted
    except Exception:
        return None  # it is made again, alone, and then it is its caller's error
    finally:
        pipe.looking = False
    return None


def _countable(inputs: Any) -> bool:
    """Texts and files, or lists of them; a list of a conversation's messages is one thing."""
    if not isinstance(inputs, list):
        return not hasattr(inputs, "__next__") and not isinstance(inputs, tuple)
    return bool(inputs) and not any(isinstance(each, (dict, list, tuple)) for each in inputs)


def _made(pipe: Any, call: Call) -> Any:
    return pipe(*call.args, **call.named)


def _try(pipe: Any, call: Call) -> Any:
    try:
        return _made(pipe, call)
    except Exception as error:
        return error
