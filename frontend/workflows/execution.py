"""One request going through a workflow: every node runs as soon as it has what it needs.

Results go from node to node inside the server, uncopied; the client sees those of the last nodes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

from marserve.archiver.workflow import Node, WorkflowSpec
from marserve.frontend.errors import DeadlineExceeded, ServeError
from marserve.frontend.joining import Joined
from marserve.frontend.model import Model
from marserve.frontend.types import Chunk, InferenceRequest
from marserve.worker.wire import Buffer, Part

_JSON = {"Content-Type": "application/json"}

Inputs = tuple[list[Part], list[Buffer]]
"""Parts, and the bytes of each."""


class NodeFailed(ServeError):
    """A node gave no result; has the status and type of its own error.

    Args:
        node: Its name.
        status: HTTP status.
        type: Name of the kind of error.
        message: The cause.
    """

    def __init__(self, node: str, status: int, type: str, message: str) -> None:
        super().__init__(f"Workflow node {node}: {message}")
        self.status = status
        self.type = type


class Execution:
    """Runs the graph once.

    Args:
        id: Of the request; those to the models have ids that begin with it.
        spec: The graph.
        find: Returns the model of a node.
        headers: The client's, handed to every node.
        deadline: On the monotonic clock.
        most_bytes: Largest result of a node: ``max_response_size``.
    """

    def __init__(
        self,
        id: str,
        spec: WorkflowSpec,
        find: Callable[[str], Model],
        headers: dict[str, str],
        deadline: float,
        most_bytes: int,
    ) -> None:
        self._id = id
        self._spec = spec
        self._find = find
        self._headers = headers
        self._deadline = deadline
        self._most_bytes = most_bytes
        self._results: dict[str, asyncio.Task[Chunk]] = {}

    async def run(self, inputs: Inputs) -> Chunk:
        """Returns the answer: that of the only last node, or an object of all by name.

        Args:
            inputs: What the client sent; the start node gets it.

        Raises:
            ServeError: If a node fails; the others are given up then.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for node in self._spec.nodes.values():  # sorted, so what each awaits is there
                    self._results[node.name] = group.create_task(self._run(node, inputs))
        except* ServeError as failures:
            raise failures.exceptions[0] from None
        leaves = {name: self._results[name].result() for name in self._spec.leaves}
        if len(leaves) == 1:
            (only,) = leaves.values()
            return Chunk(only.body, only.status, headers={**_JSON, **only.headers})
        answer = {name: _plain(chunk.body) for name, chunk in leaves.items()}
        return Chunk(json.dumps(answer).encode(), headers=dict(_JSON))

    async def _run(self, node: Node, inputs: Inputs) -> Chunk:
        before = self._spec.predecessors(node.name)
        if before:
            bodies = [(await self._results[name]).body for name in before]
            names = before if len(before) > 1 else ["body"]
            parts = [Part(name, len(body)) for name, body in zip(names, bodies, strict=True)]
            inputs = parts, bodies
        for attempt in range(1, node.attempts + 1):
            try:
                return await self._ask(node, inputs, attempt)
            except NodeFailed as failure:
                if failure.status < 500 or attempt == node.attempts:
                    raise
        raise AssertionError("a node has at least one attempt")

    async def _ask(self, node: Node, inputs: Inputs, attempt: int) -> Chunk:
        """Sends one request to a node's model and collects its answer."""
        answer = Joined(self._most_bytes)
        left_s = self._deadline - time.monotonic()
        request = InferenceRequest(
            f"{self._id}.{node.name}.{attempt}",
            "predict",
            self._headers,
            *inputs,
            answer,
            min(node.timeout_ms / 1e3, left_s),
        )
        answer.request = request
        try:
            if left_s <= 0:
                raise DeadlineExceeded("there is no time left for it")
            self._find(node.name).submit(request)
            return _checked(node.name, await answer.whole())
        except NodeFailed:
            raise
        except ServeError as error:
            raise NodeFailed(node.name, error.status, error.type, error.message) from error
        finally:
            if not request.answered:
                request.cancel()


def _checked(node: str, chunk: Chunk) -> Chunk:
    """Returns a node's answer.

    Raises:
        NodeFailed: If it is an error.
    """
    if chunk.failure is not None:
        raise NodeFailed(node, chunk.status, chunk.failure.type, chunk.failure.message)
    if chunk.status >= 400:
        text = bytes(chunk.body[:500]).decode(errors="replace")
        raise NodeFailed(node, chunk.status, "InternalServerException", text)
    return chunk


def _plain(body: Buffer) -> object:
    try:
        return json.loads(bytes(body))
    except ValueError:
        return bytes(body).decode(errors="replace")
