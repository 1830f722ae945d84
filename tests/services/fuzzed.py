"""Takes anything: tensors come back as tensors, everything else as a text that says what it was."""

import numpy


def handle(data, context):
    return data and [answer(row) for row in data]


def answer(row):
    if row and all(isinstance(value, numpy.ndarray) for value in row.values()):
        return row
    return f"{len(row)} parts"


def explain(data, context):
    return handle(data, context)
