"""Class style, streaming: each word of the body is a piece, what is returned is the last.

The import is that of older handlers; content type and status are set before the first piece.
"""

from ts.protocol.otf_message_handler import send_intermediate_predict_response


class StreamingHandler:
    def initialize(self, context):
        self.initialized = True

    def handle(self, data, context):
        rows = [row.get("data") or row.get("body") for row in data]
        texts = [r.decode() if isinstance(r, (bytes, bytearray)) else r for r in rows]
        for index, text in enumerate(texts):
            context.set_response_content_type(index, "text/plain")
            if text.startswith("status"):
                context.set_response_status(202, "Streamed", index)
        for word in texts[0].split():
            if word == "raise":
                raise ValueError("in the middle")
            pieces = [word for _ in texts]
            send_intermediate_predict_response(
                pieces, context.request_ids, "Intermediate Prediction success", 200, context
            )
        return ["." for _ in texts]
