"""``async def handle``: each request waits until as many have come as its body says.

The answer is ``met N``; the body ``fail`` raises, ``forever`` waits for nobody.
"""

import asyncio


class MeetingService:
    def initialize(self, context):
        self.present = 0
        self.arrival = asyncio.Condition()

    async def handle(self, data, context):
        (row,) = data
        wish = row["body"]
        if wish == "fail":
            raise ValueError("nobody came")
        if wish == "forever":
            await asyncio.Event().wait()
        if wish == "stream":
            context.emit(0, "piece ")
            return ["last"]
        async with self.arrival:
            self.present += 1
            self.arrival.notify_all()
            await self.arrival.wait_for(lambda: self.present >= int(wish))
        return [f"met {wish} as {context.get_request_id(0)}"]
