"""Class style with ``async def handle``: answers ``later: <text>`` after a turn of the loop."""

import asyncio


class AsyncService:
    def initialize(self, context):
        self.initialized = True

    async def handle(self, data, context):
        await asyncio.sleep(0)
        return [f"later: {text(row)}" for row in data]


def text(row):
    value = row.get("data") or row.get("body") or ""
    return value.decode() if isinstance(value, (bytes, bytearray)) else value
