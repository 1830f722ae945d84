"""Requests of the V2 protocol, and how our answers differ from Triton's and MLServer's."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

INFER = "/v2/models/mirror/infer"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Case:
    """One request.

    Args:
        triton: Aspects that differ from Triton's answer, each with words of the documentation.
        mlserver: The same for MLServer; None if it is not asked.
    """

    name: str
    path: str
    body: bytes = b""
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))
    triton: dict[str, str] | None = field(default_factory=dict)
    mlserver: dict[str, str] | None = field(default_factory=dict)


def tensor(datatype: str, shape: list[int], data: Any, **more: Any) -> dict[str, Any]:
    name = more.pop("name", f"IN_{datatype}")
    made = {"name": name, "datatype": datatype, "shape": shape, **more}
    return made if data is None else {**made, "data": data}


def asked(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def infer(name: str, body: bytes, **more: Any) -> Case:
    return Case(name, more.pop("path", INFER), body, **more)


def binary(name: str, head: dict[str, Any], *tensors: bytes, **more: Any) -> Case:
    """A request with tensors behind its JSON, which MLServer does not take."""
    text = json.dumps(head).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    headers["Content-Type"] = "application/octet-stream"
    return Case(
        name,
        INFER,
        text + b"".join(tensors),
        headers=headers,
        mlserver=None,
        **more,
    )


# Words of docs/open-inference.md.
WRONG = {"status": "500 for some of what the client got wrong"}
WRAPS = {"status": "256 as `UINT8` is 0"}
DETAIL = {"status": "422 for what it cannot read", "error": '`{"detail": ...}`'}
FORM = {"error": '`{"detail": ...}`'}
UNCHECKED = {"status": "neither shapes nor values"}
MADE_ID = {"id": "makes an id where none came"}
BODIES = "health has no body"
OWN = {"name": "its own name", "version": "its own name", "extensions": "its own name"}
VERSIONS = {"versions": "no versions in the metadata", "parameters": "no versions in the metadata"}

VALUES = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**63],
    "INT8": [-128, 127],
    "INT16": [-32768, 32767],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**53), 2**53],
    "FP32": [0.5, -1.25],
    "FP64": [0.1, 1e300],
    "BYTES": ["text", "ä\n\"'"],
}

FLAT = asked(tensor("FP32", [2, 2], [1, 2, 3, 4]))

CASES = [
    *(
        infer(f"datatype {word}", asked(tensor(word, [1, 2], data)), mlserver=MADE_ID)
        for word, data in VALUES.items()
    ),
    infer("flat data", FLAT, mlserver=MADE_ID),
    infer("nested data", asked(tensor("FP32", [2, 2], [[1, 2], [3, 4]])), mlserver=MADE_ID),
    infer("an id", asked(tensor("INT64", [1, 1], [7]), id="mine")),
    infer(
        "several inputs",
        asked(tensor("INT64", [1, 1], [7]), tensor("BYTES", [1, 1], ["a"])),
        mlserver=MADE_ID,
    ),
    infer("no rows", asked(tensor("FP32", [0, 2], [])), mlserver=MADE_ID),
    infer("a version", FLAT, path="/v2/models/mirror/versions/1/infer", mlserver=MADE_ID),
    infer(
        "parameters",
        asked(tensor("INT64", [1, 1], [7]), parameters={"own": "x", "n": 3}),
        mlserver=MADE_ID,
    ),
    infer(
        "a requested output",
        asked(
            tensor("INT64", [1, 1], [7]),
            tensor("BYTES", [1, 1], ["a"]),
            outputs=[{"name": "OUT_INT64"}],
        ),
        mlserver=None,
    ),
    binary(
        "a binary input",
        {"inputs": [tensor("FP32", [1, 2], None, parameters={"binary_data_size": 8})]},
        struct.pack("<2f", 1.5, -2),
    ),
    binary(
        "binary texts",
        {"inputs": [tensor("BYTES", [1, 1], None, parameters={"binary_data_size": 7})]},
        b"\x03\x00\x00\x00abc",
    ),
    binary(
        "binary both ways",
        {
            "inputs": [tensor("FP32", [1, 2], None, parameters={"binary_data_size": 8})],
            "parameters": {"binary_data_output": True},
        },
        struct.pack("<2f", 1.5, -2),
    ),
    binary(
        "half floats",
        {
            "inputs": [tensor("FP16", [1, 2], None, parameters={"binary_data_size": 4})],
            "parameters": {"binary_data_output": True},
        },
        struct.pack("<2e", 1.5, -2),
    ),
    binary(
        "too few bytes",
        {"inputs": [tensor("FP32", [1, 2], None, parameters={"binary_data_size": 4})]},
        struct.pack("<f", 1.5),
    ),
    binary(
        "fewer bytes than announced",
        {"inputs": [tensor("FP32", [1, 2], None, parameters={"binary_data_size": 8})]},
        struct.pack("<f", 1.5),
    ),
    infer("no JSON", b"{", triton=WRONG, mlserver=DETAIL),
    infer("no body", b"", mlserver=DETAIL),
    infer("no inputs", b"{}", triton=WRONG, mlserver=DETAIL),
    infer(
        "data that does not fill the shape",
        asked(tensor("FP32", [2, 2], [1, 2, 3])),
        triton=WRONG,
        mlserver=UNCHECKED,
    ),
    infer(
        "more data than the shape",
        asked(tensor("FP32", [1, 2], [1, 2, 3])),
        triton=WRONG,
        mlserver=UNCHECKED,
    ),
    infer(
        "a negative dimension",
        asked(tensor("FP32", [1, -1], [1])),
        triton=WRONG,
        mlserver=UNCHECKED,
    ),
    infer(
        "an unknown datatype", asked(tensor("FP31", [1, 1], [1], name="IN_FP32")), mlserver=DETAIL
    ),
    infer(
        "another datatype than the model's",
        asked(tensor("FP64", [1, 1], [1], name="IN_FP32")),
        mlserver=MADE_ID,
    ),
    infer("an unknown input", asked(tensor("FP32", [1, 1], [1], name="other")), mlserver=MADE_ID),
    infer("another rank than the model's", asked(tensor("FP32", [1], [1])), mlserver=MADE_ID),
    infer(
        "an input twice",
        asked(tensor("FP32", [1, 1], [1]), tensor("FP32", [1, 1], [2])),
        mlserver=UNCHECKED,
    ),
    infer(
        "a number for a text", asked(tensor("BYTES", [1, 1], [7])), triton=WRONG, mlserver=UNCHECKED
    ),
    infer(
        "a text for a number",
        asked(tensor("FP32", [1, 1], ["x"])),
        triton=WRONG,
        mlserver=UNCHECKED,
    ),
    infer(
        "a fraction for an integer",
        asked(tensor("INT32", [1, 1], [1.5])),
        triton=WRONG,
        mlserver=UNCHECKED,
    ),
    infer(
        "a number beyond its type",
        asked(tensor("UINT8", [1, 1], [256])),
        triton=WRAPS,
        mlserver=UNCHECKED,
    ),
    infer(
        "an unknown requested output",
        asked(tensor("FP32", [1, 1], [1]), outputs=[{"name": "x"}]),
        mlserver=UNCHECKED,
    ),
    infer("a model that raises", asked(tensor("BYTES", [1, 1], ["raise"]))),
    infer("a model that refuses", asked(tensor("BYTES", [1, 1], ["refuse"]))),
    infer("an unknown model", FLAT, path="/v2/models/absent/infer"),
    infer("an unknown version", FLAT, path="/v2/models/mirror/versions/9/infer"),
    infer(
        "the type of a form",
        FLAT,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        mlserver={"status": "422 for what it cannot read"},
    ),
    Case("wrong method", INFER, method="GET", mlserver=FORM),
    Case("unknown path", "/v2/nothing", method="GET", mlserver=FORM),
    Case(
        "live", "/v2/health/live", method="GET", triton={"live": BODIES}, mlserver={"live": BODIES}
    ),
    Case(
        "ready",
        "/v2/health/ready",
        method="GET",
        triton={"ready": BODIES},
        mlserver={"ready": BODIES},
    ),
    Case(
        "model ready",
        "/v2/models/mirror/ready",
        method="GET",
        triton={"name": BODIES, "ready": BODIES},
        mlserver={"name": BODIES, "ready": BODIES},
    ),
    Case(
        "unknown model ready",
        "/v2/models/absent/ready",
        method="GET",
        triton={"status": "400 for the readiness of an unknown model"},
    ),
    Case("metadata", "/v2/models/mirror", method="GET", mlserver=VERSIONS),
    Case("metadata of a version", "/v2/models/mirror/versions/1", method="GET", mlserver=VERSIONS),
    Case("metadata of an unknown model", "/v2/models/absent", method="GET"),
    Case("server metadata", "/v2", method="GET", triton=OWN, mlserver=OWN),
    Case("index", "/v2/repository/index", b"{}", mlserver={"body": "an empty `reason`"}),
    Case(
        "index of what is ready",
        "/v2/repository/index",
        b'{"ready": true}',
        mlserver={"body": "an empty `reason`"},
    ),
]

# Rows of a batch: of a Triton model with max_batch_size 8.
ROWS = "/v2/models/rows/infer"


def rows(name: str, count: int) -> Case:
    data = [float(n) for n in range(2 * count)]
    both = [tensor("FP32", [count, 2], data, name=each) for each in "AB"]
    return infer(name, asked(*both), path=ROWS, mlserver=None)


CASES += [
    rows("a batch", 8),
    rows("a batch that is too large", 9),
    infer(
        "tensors of unequal batch",
        asked(
            tensor("FP32", [1, 2], [1, 2], name="A"), tensor("FP32", [2, 2], [1, 2, 3, 4], name="B")
        ),
        path=ROWS,
        mlserver=None,
    ),
    infer(
        "a missing input", asked(tensor("FP32", [1, 2], [1, 2], name="A")), path=ROWS, mlserver=None
    ),
    Case("metadata of a batching model", "/v2/models/rows", method="GET", mlserver=None),
]
