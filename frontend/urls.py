"""Which URLs archives may come from.

None is allowed unless ``allowed_urls`` says so. A URL is brought into one form before it is
compared, and addresses where clouds keep credentials are refused.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from marserve.frontend.errors import ModelNotFound

SCHEMES = ("http", "https", "file")

# Where clouds keep credentials, beside the link-local addresses.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Remote(NamedTuple):
    """A URL that is allowed.

    Args:
        url: In normal form, without the fragment.
        filename: Its name in the model store.
        sha256: What the file must hash to, lower-case hex; empty where the URL names none.
    """

    url: str
    filename: str
    sha256: str


def is_url(text: str) -> bool:
    """Returns whether a text names a scheme, allowed or not, rather than a file of the store."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text) is not None


def parse_url(text: str, allowed: Sequence[re.Pattern[str]]) -> Remote:
    """Brings a URL into normal form and checks that it is allowed.

    Args:
        text: May end in ``#sha256=<64 hex digits>``.
        allowed: Patterns, one of which must match the whole URL.

    Raises:
        ModelNotFound: If it is not allowed, or is no URL that could be.
    """
    refused = ModelNotFound(f"Given URL {text[:200]} does not match any allowed URL(s)")
    try:
        url, sha256 = _normal(text)
    except ValueError as error:
        raise refused from error
    if not any(pattern.fullmatch(url) for pattern in allowed):
        raise refused
    filename = unquote(urlsplit(url).path).rsplit("/", 1)[-1]
    if not re.fullmatch(r"[^\x00-\x1f/\\.][^\x00-\x1f/\\]*", filename):
        raise ModelNotFound(f"Given URL {text[:200]} does not end in a file name")
    return Remote(url, filename, sha256)


def refuse_addresses(host: str) -> None:
    """Refuses addresses of the link, where clouds keep credentials, and such that are no host's.

    Raises:
        ValueError: If the host is one.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return
    for each in (address, *_embedded(address)):
        if each.is_link_local or each.is_multicast or each.is_unspecified or each in _METADATA:
            raise ValueError(f"the address {host} is refused")


def _normal(text: str) -> tuple[str, str]:
    """One form of a URL: lower-case scheme and host, decoded path; and the hash in its fragment."""
    if re.search(r"[\x00-\x20\x7f\\]", text):
        raise ValueError("control characters or backslashes")
    parts = urlsplit(text)
    path = unquote(parts.path)
    if parts.scheme not in SCHEMES or "@" in parts.netloc or ".." in path or "\0" in path:
        raise ValueError("no URL that could be allowed")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError("a file of another machine")
        path, netloc = os.path.realpath(path), ""
    else:
        if not parts.hostname:
            raise ValueError("no host")
        netloc = parts.netloc.lower()
        refuse_addresses(parts.hostname)
    fragment = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", parts.fragment)
    if parts.fragment and fragment is None:
        raise ValueError("a fragment that is no sha256")
    safe = quote(path, safe="/:@!$&'()*+,;=~-._")
    url = urlunsplit((parts.scheme, netloc, safe, parts.query, ""))
    return url, fragment[1].lower() if fragment else ""


def _embedded(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address may stand for."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]
