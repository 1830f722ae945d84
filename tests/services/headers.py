"""Answers the request's headers, as a JSON object."""


def handle(data, context):
    if data is None:
        return None
    return [dict(context.get_all_request_header(index)) for index in range(len(data))]
