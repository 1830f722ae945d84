"""The routes of workflows: registered on the management surface, asked on the inference surface."""

from __future__ import annotations

from aiohttp import web

from marserve.frontend.api import http
from marserve.frontend.api.exchange import Exchange
from marserve.frontend.api.management_requests import (
    page_of,
    parse_page,
    parse_workflow_registration,
)
from marserve.frontend.api.routing import Answer, Route
from marserve.frontend.errors import MethodNotAllowed
from marserve.frontend.workflows.registry import Workflow

_GET, _POST = frozenset({"GET", "HEAD"}), frozenset({"POST"})
_ASKED, _MANAGED = "inference", "management"
_DELETE = frozenset({"DELETE"})


def inference_routes() -> list[Route]:
    """Returns what the inference surface has."""
    return [Route("/wfpredict/{workflow}", predict, token=_ASKED, operation="predict_workflow")]


def management_routes(model_api: bool) -> list[Route]:
    """Returns what the management surface has.

    Args:
        model_api: Whether workflows may be registered and unregistered.
    """
    one = "/workflows/{workflow}"

    def row(pattern: str, answer: Answer, methods: frozenset[str], operation: str) -> Route:
        return Route(pattern, answer, methods, _MANAGED, operation)

    return [
        row("/workflows", list_workflows, _GET, "list_workflows"),
        row("/workflows", register if model_api else _off, _POST, "register_workflow"),
        row(one, describe, _GET, "describe_workflow"),
        row(one, unregister if model_api else _off, _DELETE, "unregister_workflow"),
    ]


async def predict(exchange: Exchange) -> web.StreamResponse:
    """``/wfpredict/{workflow}``."""
    workflows = exchange.services.workflows
    name = exchange.parameters["workflow"]
    workflows.resolve(name)  # before a large body is read
    body = await exchange.read_body()
    sent = exchange.request.headers
    headers = http.decode_headers(exchange.request.raw_headers, exchange.services.auth.enabled)
    inputs = http.parse_body(sent.get("Content-Type"), body)
    timeout_s = http.parse_timeout(sent.get(http.TIMEOUT_HEADER))
    answer = await workflows.run(name, exchange.id, headers, inputs, timeout_s)
    return await exchange.send_large(answer)


async def list_workflows(exchange: Exchange) -> web.StreamResponse:
    """Lists workflows, page by page."""
    limit, begin = parse_page(exchange.query)
    rows = [
        {"workflowName": workflow.name, "workflowUrl": workflow.url}
        for workflow in exchange.services.workflows.all()
    ]
    return exchange.json(page_of("workflows", rows, begin, limit))


async def register(exchange: Exchange) -> web.StreamResponse:
    """Registers a workflow from the workflow store or an allowed URL."""
    body = await exchange.read_body()
    kind = exchange.request.headers.get("Content-Type")
    url, name = parse_workflow_registration(exchange.query_pairs, kind, body)
    workflow = await exchange.finish(exchange.services.workflows.register(url, name))
    return exchange.status(f"Workflow {workflow.name} has been registered and scaled successfully.")


async def describe(exchange: Exchange) -> web.StreamResponse:
    """Describes a workflow: its graph and its models."""
    workflow = exchange.services.workflows.resolve(exchange.parameters["workflow"])
    return exchange.json([_described(workflow)])


async def unregister(exchange: Exchange) -> web.StreamResponse:
    """Forgets a workflow and its models."""
    name = exchange.parameters["workflow"]
    await exchange.finish(exchange.services.workflows.unregister(name))
    return exchange.status(f'Workflow "{name}" unregistered')


async def _off(exchange: Exchange) -> web.StreamResponse:
    raise MethodNotAllowed(
        "Registering and unregistering workflows is switched off. Start the server with"
        " --enable-model-api, or set enable_model_api=true in config.properties."
    )


def _described(workflow: Workflow) -> dict[str, object]:
    nodes = workflow.spec.nodes.values()
    return {
        "workflowName": workflow.name,
        "workflowUrl": workflow.url,
        "workflowDag": {name: list(after) for name, after in workflow.spec.successors.items()},
        "models": [
            {
                "name": node.name,
                "modelName": workflow.model_name(node.name),
                "modelUrl": node.url,
                "minWorkers": node.min_workers,
                "maxWorkers": node.max_workers,
                "batchSize": node.batch_size,
                "maxBatchDelay": node.max_batch_delay_ms,
                "retryAttempts": node.attempts,
                "timeoutMs": node.timeout_ms,
            }
            for node in nodes
        ],
    }
