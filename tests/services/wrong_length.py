"""Returns one result more than there are requests; for the body ``dict`` an object, no list;
for the body ``none`` nothing at all."""


def handle(data, context):
    if data is None:
        return None
    wish = data[0].get("data") or data[0].get("body")
    wish = wish.decode() if isinstance(wish, (bytes, bytearray)) else wish
    if wish == "dict":
        return {"result": "no list"}
    if wish == "none":
        return None
    return ["one too many"] * (len(data) + 1)
