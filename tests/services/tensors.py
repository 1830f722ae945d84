"""Tensors in, tensors out: every input comes back under its name, and ``shapes`` as JSON texts."""

import numpy


def handle(data, context):
    if data is None:
        return None
    return [answer(row) for row in data]


def answer(row):
    if "break" in row:
        raise ValueError("broken on request")
    shapes = [f"{name}{list(array.shape)}{array.dtype}" for name, array in row.items()]
    return {**row, "shapes": numpy.array(shapes, object)}
