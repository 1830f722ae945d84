"""Answers the version it is served under; the body ``fail`` fails in version 2.0 alone."""


def handle(data, context):
    if data is None:
        return None
    version = context.manifest["model"]["modelVersion"]
    return [answer(row, version) for row in data]


def answer(row, version):
    text = row.get("data") or row.get("body")
    if text == "fail" and version == "2.0":
        raise ValueError("2.0 cannot do this")
    return version
