"""Function style, ``async def``: what it makes when it is called to load belongs to its event loop.

Answers ``text``, put through a queue that a task reads which was begun at load.
"""

import asyncio

state = {}


async def double(inbox):
    while True:
        text, answer = await inbox.get()
        answer.set_result(text * 2)


async def handle(data, context):
    loop = asyncio.get_running_loop()
    if data is None:
        state["inbox"] = asyncio.Queue()
        state["task"] = loop.create_task(double(state["inbox"]))
        return None
    answers = [loop.create_future() for _ in data]
    for row, answer in zip(data, answers, strict=True):
        state["inbox"].put_nowait((row["body"], answer))
    return list(await asyncio.gather(*answers))
