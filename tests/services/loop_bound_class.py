"""Class style, ``async def initialize``: answers the text, and whether the loop is the same."""

import asyncio


class Handler:
    async def initialize(self, context):
        self.loop = asyncio.get_running_loop()

    async def handle(self, data, context):
        same = asyncio.get_running_loop() is self.loop
        return [f"{row['body']} {same}" for row in data]
