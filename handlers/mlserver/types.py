"""``mlserver.types``: requests, answers and tensors as runtimes see them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, ClassVar

from marserve.handlers.mlserver.records import Record, ValidationError


class Datatype(enum.Enum):
    """The words for the type of a tensor's elements."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"


class State(enum.Enum):
    """Whether a model of the repository serves."""

    UNKNOWN = "UNKNOWN"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"


class Parameters(Record):
    """Parameters of a request, an answer or a tensor; any name may be one."""

    extra_fields: ClassVar[bool] = True
    content_type: str | None = None
    headers: dict[str, Any] | None = None


class TensorData:
    """The elements of a tensor: a list, flat or nested, at ``root``.

    Numeric tensors that came in, or go out, as arrays stay arrays until somebody asks for the list.

    Args:
        root: A list, or an array.
    """

    __slots__ = ("_array", "_root")

    def __init__(self, root: Any) -> None:
        self._array = root if hasattr(root, "dtype") and hasattr(root, "shape") else None
        self._root = root if self._array is None else None

    @classmethod
    def wrap(cls, value: Any) -> TensorData:
        """Returns the value as tensor data."""
        return value if isinstance(value, TensorData) else cls(value)

    @property
    def root(self) -> Any:
        """The elements as a list."""
        if self._root is None and self._array is not None:
            self._root = self._array.ravel().tolist()
        return self._root

    @root.setter
    def root(self, value: Any) -> None:
        self._array, self._root = None, value

    @property
    def array(self) -> Any:
        """The array that they are, or None; not to be written to."""
        return self._array

    def model_dump(self, mode: str = "python", **_: Any) -> Any:
        """Returns the list."""
        if mode != "json" or not isinstance(self.root, list):
            return self.root
        return [each.decode() if isinstance(each, bytes) else each for each in self.root]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.root)

    def __getitem__(self, at: Any) -> Any:
        return self.root[at]

    def __len__(self) -> int:
        return len(self.root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorData) and bool(self.root == other.root)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TensorData(root={self.root!r})"


class MetadataTensor(Record):
    """What a model says of an input or output."""

    name: str
    datatype: Datatype | str
    shape: list[int]
    parameters: Parameters | None = None


class RequestInput(Record):
    """An input of a request."""

    name: str
    shape: list[int]
    datatype: Datatype | str
    parameters: Parameters | None = None
    data: TensorData


class RequestOutput(Record):
    """An output that a request asks for."""

    name: str
    parameters: Parameters | None = None


class ResponseOutput(Record):
    """An output of an answer."""

    name: str
    shape: list[int]
    datatype: Datatype | str
    parameters: Parameters | None = None
    data: TensorData


class InferenceRequest(Record):
    """A request."""

    id: str | None = None
    parameters: Parameters | None = None
    inputs: list[RequestInput]
    outputs: list[RequestOutput] | None = None


class InferenceResponse(Record):
    """An answer."""

    model_name: str
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[ResponseOutput]


class InferenceErrorResponse(Record):
    """What is answered in the place of a result."""

    error: str | None = None


class MetadataServerResponse(Record):
    """What a server says of itself."""

    name: str
    version: str
    extensions: list[str]


class MetadataServerErrorResponse(Record):
    """What is answered in the place of a server's metadata."""

    error: str


class MetadataModelResponse(Record):
    """What a model says of itself."""

    name: str
    versions: list[str] | None = None
    platform: str
    inputs: list[MetadataTensor] | None = None
    outputs: list[MetadataTensor] | None = None
    parameters: Parameters | None = None


class MetadataModelErrorResponse(Record):
    """What is answered in the place of a model's metadata."""

    error: str


class RepositoryIndexRequest(Record):
    """What an index is asked for."""

    ready: bool | None = None


class RepositoryIndexResponseItem(Record):
    """One line of an index."""

    name: str
    version: str | None = None
    state: State
    reason: str


class RepositoryLoadErrorResponse(Record):
    """Why a model was not loaded."""

    error: str | None = None


class RepositoryUnloadErrorResponse(Record):
    """Why a model was not unloaded."""

    error: str | None = None


RepositoryIndexResponse = list[RepositoryIndexResponseItem]

__all__ = [
    "Datatype",
    "InferenceErrorResponse",
    "InferenceRequest",
    "InferenceResponse",
    "MetadataModelErrorResponse",
    "MetadataModelResponse",
    "MetadataServerErrorResponse",
    "MetadataServerResponse",
    "MetadataTensor",
    "Parameters",
    "RepositoryIndexRequest",
    "RepositoryIndexResponse",
    "RepositoryIndexResponseItem",
    "RepositoryLoadErrorResponse",
    "RepositoryUnloadErrorResponse",
    "RequestInput",
    "RequestOutput",
    "ResponseOutput",
    "State",
    "TensorData",
    "ValidationError",
]
