"""Stand-in for curl where it is not installed: the few flags that the demo uses, nothing more."""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path

TIMEOUT_S = 180


def request(argv: list[str]) -> urllib.request.Request:
    """Return the request that a curl command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", "--data-binary", dest="data")
    parser.add_argument("-T", dest="file", type=Path)
    given = parser.parse_args(argv)
    body = given.data.encode() if given.data is not None else None
    if given.data is not None and given.data.startswith("@"):
        body = Path(given.data[1:]).read_bytes()
    if given.file is not None:
        body = given.file.read_bytes()
    headers = dict(header.split(": ", 1) for header in given.headers)
    method = given.method or ("GET" if body is None else "POST")
    return urllib.request.Request(given.url, data=body, headers=headers, method=method)


def main() -> int:
    """Send it, print the answer, and fail like `curl --fail-with-body`."""
    asked = request(sys.argv[1:])
    if not asked.full_url.startswith("http://127.0.0.1:"):
        print("this stand-in talks to the demo's own server only", file=sys.stderr)
        return 2
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=TIMEOUT_S) as answer:
            sys.stdout.write(answer.read().decode())
    except urllib.error.HTTPError as error:
        sys.stdout.write(error.read().decode())
        return 22
    except urllib.error.URLError as error:
        print(f"{asked.full_url}: {error.reason}", file=sys.stderr)
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main())
