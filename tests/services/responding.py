"""Sets status, headers and content type of its responses; the JSON body says which.

Keys, all optional: ``status`` (int), ``phrase``, ``headers`` (object), ``content_type``, ``body``.
The answer is ``body``, by default the text ``responded``. Needs the content type application/json.
"""

from ts.context import Context


def handle(data, context: Context):
    if data is None:
        return None
    return [
        respond(row.get("data") or row.get("body") or {}, index, context)
        for index, row in enumerate(data)
    ]


def respond(wish, index, context):
    if "status" in wish:
        context.set_response_status(code=wish["status"], phrase=wish.get("phrase", ""), idx=index)
    if "content_type" in wish:
        context.set_response_content_type(index, wish["content_type"])
    for key, value in wish.get("headers", {}).items():
        context.set_response_header(index, key, value)
    return wish.get("body", "responded")
