"""Returns results of several types; the text of the body says which.

``bytes``, ``str``, ``dict``, ``list``, ``number``, ``none``, ``tensor`` (saved by ``torch.save``)
and ``object``, which nothing can turn into a response.
"""

RESULTS = {
    "bytes": b"\x00\x01\xfe\xff",
    "str": "some text",
    "dict": {"label": "cat", "score": 0.5},
    "list": [1, 2.5, None],
    "number": 7,
    "none": None,
}


def handle(data, context):
    if data is None:
        return None
    return [result(row.get("data") or row.get("body")) for row in data]


def result(value):
    wish = value.decode() if isinstance(value, (bytes, bytearray)) else value
    if wish == "object":
        return object()
    if wish == "tensor":
        import torch

        return torch.arange(3)
    return RESULTS[wish]
