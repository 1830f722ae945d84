"""Streams: the body is a number N, the answer N pieces ``hello 0 `` ... and a last one ``done``.

Sent with ``send_intermediate_predict_response``; each request of a batch gets its own number of
them, the shorter ones empty pieces at the end.
"""

from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    counts = [int(row.get("data") or row.get("body") or 3) for row in data]
    for step in range(max(counts)):
        pieces = [f"hello {step} " if step < count else "" for count in counts]
        send_intermediate_predict_response(
            pieces, context.request_ids, "Intermediate Prediction success", 200, context
        )
    return ["done" for _ in data]
