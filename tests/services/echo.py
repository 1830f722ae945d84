"""Function style: answers every request with what it sent.

Entry point ``handle``; called once as ``handle(None, context)`` at load, then with every batch.
A JSON body comes back as JSON, text as text, anything else as the same bytes; a form comes back
as an object of its text fields.
"""


def handle(data, context):
    if data is None:
        return None
    return [answer(row) for row in data]


def answer(row):
    if "body" in row:
        return row["body"]
    if "data" in row:
        return row["data"]
    return {
        key: value.decode() if isinstance(value, bytearray) else value for key, value in row.items()
    }
