"""Functions of a workflow: each shows what it was given."""

import json
import os
import time


def first(data, context):
    """Passes the body on, whatever its name."""
    if data is None:
        return None
    return [bytes(row.get("body") or row.get("data") or b"") for row in data]


def upper(data, context):
    return data and [bytes(row["body"]).upper() for row in data]


def length(data, context):
    return data and [{"bytes": len(row["body"])} for row in data]


def join(data, context):
    return data and [
        {name: bytes(value).decode() for name, value in sorted(row.items())} for row in data
    ]


def held(data, context):
    """Shows by a file that it has begun, and waits for another file; the body names both."""
    if not data:
        return None
    body = json.loads(bytes(data[0]["body"]))
    with open(body["begun"], "a") as begun:
        begun.write("x")
    while not os.path.exists(body["go"]):
        time.sleep(0.01)
    return ["held"]


def flood(data, context):
    """Streams as many pieces of 1 MB as the body says."""
    from ts.handler_utils.utils import send_intermediate_predict_response as send

    if not data:
        return None
    for _ in range(int(bytes(data[0].get("body") or data[0].get("data"))) - 1):
        send([b"x" * 1_000_000], context.request_ids, "", 200, context)
    return [b"x" * 1_000_000]


def flaky(data, context):
    """Fails on the odd calls; the count is kept in a file beside the archive's."""
    if not data:
        return None
    body = json.loads(bytes(data[0]["body"]))
    with open(body["count"], "a+") as count:
        count.write("x")
        count.seek(0)
        if len(count.read()) < body["succeed_at"]:
            raise RuntimeError("not yet")
    return [str(os.getpid())]
