"""What every question of V2 over gRPC needs: its model, and what surrounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marserve.frontend.api.exchange import checked_name
from marserve.frontend.errors import BadRequest
from marserve.frontend.grpc.call import Call
from marserve.frontend.grpc.open.messages import Question
from marserve.frontend.v2.questions import Call as Surroundings

if TYPE_CHECKING:
    from marserve.frontend.api.exchange import Services
    from marserve.frontend.model import Model


def find_model(question: Question, services: Services) -> Model:
    """Returns the model that a question is for.

    Raises:
        BadRequest: If it names none.
        ServeError: If there is none of that name and version.
    """
    if not question.model:
        raise BadRequest("model_name is empty; expected the name of a model.")
    return services.registry.route(checked_name(question.model), question.version)


def surroundings(call: Call, question: Question, id: str, streams: bool = False) -> Surroundings:
    """Returns what surrounds a question that came by a call."""
    pinned = question.version is not None
    return Surroundings(call.head.headers, id, call.time_remaining(), pinned, streams)
