"""Answers how many threads torch computes with."""

import torch


def handle(data, context):
    if data is None:
        return None
    return [str(torch.get_num_threads()) for _ in data]
