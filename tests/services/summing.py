"""Behind the envelope kservev2, which hands over a tensor each: the sum of its numbers."""


def handle(data, context):
    return None if data is None else [sum(tensor["data"]) for tensor in data]
