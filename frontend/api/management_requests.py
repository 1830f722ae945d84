"""Management requests and pages as pure functions; REST and later gRPC mean the same by them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import yaml

from marserve.frontend.api.forms import media_type
from marserve.frontend.errors import BadRequest, ModelNotFound
from marserve.frontend.registration import Registration
from marserve.worker.wire import Buffer

MAX_PAGE = 100
_INT_LIMIT = 2**31 - 1
_MAX_YAML_BYTES = 4096  # beyond it reading takes so long that everybody else would notice
_REGISTER = frozenset(
    {"url", "model_name", "handler", "runtime", "batch_size", "max_batch_delay"}
    | {"initial_workers", "synchronous", "response_timeout", "startup_timeout", "s3_sse_kms"}
)
_SCALE = frozenset(
    {"min_worker", "max_worker", "synchronous", "model_version", "number_gpu", "timeout"}
)
_RUNTIMES = ("python", "python3", "LSP")

T = TypeVar("T")


class ScaleWanted(NamedTuple):
    """What a scale request asks for."""

    min_workers: int
    max_workers: int | None
    synchronous: bool
    version: str | None


def parse_register(
    query: Iterable[tuple[str, str]], content_type: str | None, body: Buffer
) -> tuple[Registration, list[str]]:
    """Reads a register request, from a JSON body if it has one, else from the query.

    Returns:
        What is wanted, and the names of parameters that do not exist.

    Raises:
        BadRequest: If ``url`` is missing or a value is wrong; names the parameter.
        ModelNotFound: If ``url`` is empty.
    """
    values = _with_url(query, content_type, body)
    runtime = _text(values, "runtime")
    if runtime is not None and runtime not in _RUNTIMES:
        raise BadRequest(f"Invalid RuntimeType value: {runtime}; it is one of {_RUNTIMES}.")
    synchronous = _truth(values, "synchronous")
    wanted = Registration(
        url=str(values["url"]),
        model_name=_text(values, "model_name"),
        handler=_text(values, "handler"),
        runtime=runtime,
        batch_size=_integer(values, "batch_size", least=1, absent=-1),
        max_batch_delay=_integer(values, "max_batch_delay", least=0, absent=-100),
        initial_workers=_integer(values, "initial_workers", least=0),
        synchronous=True if synchronous is None else synchronous,
        response_timeout=_integer(values, "response_timeout", least=1, absent=-1),
        startup_timeout=_integer(values, "startup_timeout", least=1, absent=-1),
    )
    return wanted, [name for name in values if name not in _REGISTER]


def parse_workflow_registration(
    query: Iterable[tuple[str, str]], content_type: str | None, body: Buffer
) -> tuple[str, str | None]:
    """Reads a request to register a workflow: its URL, and its name if one is given.

    Raises:
        BadRequest: If ``url`` is missing.
        ModelNotFound: If it is empty.
    """
    values = _with_url(query, content_type, body)
    return str(values["url"]), _text(values, "workflow_name")


def _with_url(
    query: Iterable[tuple[str, str]], content_type: str | None, body: Buffer
) -> dict[str, Any]:
    """The parameters of a registration, from a JSON body if there is one, else from the query."""
    values: dict[str, Any] = dict(reversed(list(query)))
    if media_type(content_type) == "application/json":
        values = {**values, **_document(body)}
    if values.get("url") is None:
        raise BadRequest("Parameter url is required.")
    if not values["url"]:
        raise ModelNotFound("empty url")
    return values


def parse_scale(query: Iterable[tuple[str, str]]) -> tuple[ScaleWanted, list[str]]:
    """Reads a scale request.

    Returns:
        What is wanted, and the names of parameters that do not exist.

    Raises:
        BadRequest: If a value is wrong; names the parameter.
    """
    values = dict(reversed(list(query)))
    least = _integer(values, "min_worker", least=0)
    most = _integer(values, "max_worker", least=0)
    minimum = 1 if least is None else least
    if most is not None and most < minimum:
        raise BadRequest(f"max_worker cannot be less than min_worker. ({most} < {minimum})")
    wanted = ScaleWanted(
        minimum, most, bool(_truth(values, "synchronous")), _text(values, "model_version")
    )
    return wanted, [name for name in values if name not in _SCALE]


def parse_traffic(body: Buffer) -> tuple[dict[str, float] | None, str | None]:
    """Reads traffic rules: an object of ``weights`` and ``shadow``, both optional.

    Returns:
        The weights by version and the shadow version; None for what is not given.

    Raises:
        BadRequest: If they make no sense; names the key.
    """
    try:
        values = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise BadRequest("The request body is no JSON object.") from error
    if not isinstance(values, dict):
        raise BadRequest("The request body is no JSON object.")
    if unknown := sorted(values.keys() - {"weights", "shadow"}):
        raise BadRequest(f"Unknown key {unknown[0]!r}: the keys are weights and shadow.")
    weights = values.get("weights")
    if weights is None:
        return None, _text(values, "shadow")
    if not isinstance(weights, dict):
        raise BadRequest('weights must be an object such as {"1.0": 90, "2.0": 10}.')
    checked = {str(version): _weight(str(version), value) for version, value in weights.items()}
    if not any(checked.values()):
        raise BadRequest("weights: one at least must be above 0.")
    return checked, _text(values, "shadow")


def _weight(version: str, value: Any) -> float:
    fine = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fine or not 0 <= value <= _INT_LIMIT:
        raise BadRequest(
            f"weights: {version}: expected a number from 0 on, got {str(value)[:100]!r}."
        )
    number: float = value
    return number


def parse_page(query: Mapping[str, str]) -> tuple[int, int]:
    """Returns limit and first index of a page; a limit outside 1 to 100 is 100.

    Raises:
        BadRequest: If a value is no integer.
    """
    limit = _integer(query, "limit")
    begin = _integer(query, "next_page_token")
    return limit if limit is not None and 0 < limit <= MAX_PAGE else MAX_PAGE, max(begin or 0, 0)


def render_page(models: list[tuple[str, str]], begin: int, limit: int) -> dict[str, Any]:
    """Returns a page of names and URLs; ``nextPageToken`` stands there if more follow."""
    return page_of(
        "models", [{"modelName": name, "modelUrl": url} for name, url in models], begin, limit
    )


def page_of(key: str, rows: Sequence[Mapping[str, Any]], begin: int, limit: int) -> dict[str, Any]:
    """Returns a page of rows under a key."""
    page: dict[str, Any] = {}
    if begin + limit < len(rows):
        page["nextPageToken"] = str(begin + limit)
    page[key] = list(rows[begin : begin + limit])
    return page


def _document(body: Buffer) -> dict[str, Any]:
    """A JSON object; single quotes and other liberties that older clients take are read as YAML."""
    try:
        value = json.loads(bytes(body))
    except ValueError:
        if len(body) > _MAX_YAML_BYTES:
            raise BadRequest("The request body is no JSON object.") from None
        try:
            value = None if _has_aliases(bytes(body)) else yaml.safe_load(bytes(body))
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise BadRequest("The request body is no JSON object.") from error
    except RecursionError as error:
        raise BadRequest("The request body is no JSON object.") from error
    if not isinstance(value, dict):
        raise BadRequest("The request body is no JSON object.")

    return {str(key): item for key, item in value.items()}


def _has_aliases(document: bytes) -> bool:
    """Whether a text names parts of itself: a short one may stand for an exponential one then."""
    events = yaml.parse(document, Loader=yaml.SafeLoader)
    return any(isinstance(event, yaml.AliasEvent) for event in events)


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, (dict, list)):
        raise BadRequest(f"Parameter {name} must be text.")
    return str(value)


def _integer(
    values: Mapping[str, Any], name: str, least: int | None = None, absent: int | None = None
) -> int | None:
    """An integer; ``absent`` is the value by which TorchServe's clients say "not given"."""
    number = _convert(values, name, _whole, "an integer")
    if number is None or number == absent:
        return None
    if least is not None and not least <= number <= _INT_LIMIT:
        raise BadRequest(f"Parameter {name} must be {least} to {_INT_LIMIT}, not {number}.")
    return number


def _truth(values: Mapping[str, Any], name: str) -> bool | None:
    words = {"true": True, "false": False}
    return _convert(values, name, lambda value: words[str(value).lower()], "true or false")


def _convert(
    values: Mapping[str, Any], name: str, convert: Callable[[Any], T], expected: str
) -> T | None:
    value = values.get(name)
    if value is None or value == "":
        return None
    try:
        return convert(value)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        text = str(value)[:100]
        raise BadRequest(f"Parameter {name} must be {expected}, not {text!r}.") from error


def _whole(value: Any) -> int:
    """Whole numbers and their texts; 2.0 is one, as JSON does not tell it from 2; True is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    number = int(value)
    if isinstance(value, float) and number != value:
        raise ValueError
    return number
