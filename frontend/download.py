"""Fetches archives from allowed URLs into the model store: checked first, written whole or not.

No URL is allowed unless ``allowed_urls`` says so. A URL is brought into one form before it is
compared, every redirect is compared again, and names that lead to link-local addresses (where
clouds keep credentials) or to this machine itself are refused on connecting, so that a name cannot
change its mind. Other private addresses are where model stores are: a pattern that names them
allows them.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from marserve.frontend.errors import DownloadFailed, InternalError, ModelNotFound

logger = logging.getLogger(__name__)

SCHEMES = ("http", "https", "file")
MAX_REDIRECTS = 5
MAX_BYTES = 256 << 30
STALL_S = 60.0
"""A download that makes no progress for so long has failed."""

_BLOCK_BYTES = 1 << 20
# Where clouds keep credentials, beside the link-local addresses.
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_PART = ".marserve-part-"
_PART_AGE_S = 24 * 3600.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


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


async def download(remote: Remote, store: Path, allowed: Sequence[re.Pattern[str]]) -> Path:
    """Fetches an archive into the model store.

    Returns:
        Where it is.

    Raises:
        InternalError: If a file of that name is there already.
        DownloadFailed: If it cannot be fetched, or does not have the hash it should.
        ModelNotFound: If it redirects to a URL that is not allowed.
    """
    target = store / remote.filename
    if await asyncio.to_thread(os.path.lexists, target):
        raise InternalError(f"Model file already exists {remote.filename}")
    part = store / f"{_PART}{secrets.token_hex(8)}"
    logger.info("downloading %s", remote.url)
    try:
        digest = await _write(_blocks(remote.url, allowed), part)
        if remote.sha256 and digest != remote.sha256:
            raise DownloadFailed(
                f"{remote.url} has the sha256 {digest}, not {remote.sha256} as the URL says."
            )
        os.link(part, target)  # unlike a rename, never in place of another file
    except FileExistsError as error:
        raise InternalError(f"Model file already exists {remote.filename}") from error
    except (OSError, TimeoutError, aiohttp.ClientError, ValueError) as error:
        logger.warning("download of %s failed: %r", remote.url, error)
        reason = getattr(error, "strerror", None) or type(error).__name__
        text = f"Failed to download archive from: {remote.url} ({reason})"
        raise DownloadFailed(text) from error
    finally:
        part.unlink(missing_ok=True)
    return target


def sweep_parts(store: Path) -> None:
    """Removes what downloads of a killed server left in the store a day ago or longer."""
    if not store.is_dir():
        return
    for part in store.glob(f"{_PART}*"):
        try:
            if time.time() - part.lstat().st_mtime > _PART_AGE_S:
                part.unlink()
        except OSError as error:
            logger.warning("%s cannot be removed: %s", part.name, error)


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
        _check_literal(parts.hostname)
    fragment = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", parts.fragment)
    if parts.fragment and fragment is None:
        raise ValueError("a fragment that is no sha256")
    safe = quote(path, safe="/:@!$&'()*+,;=~-._")
    url = urlunsplit((parts.scheme, netloc, safe, parts.query, ""))
    return url, fragment[1].lower() if fragment else ""


async def _blocks(url: str, allowed: Sequence[re.Pattern[str]]) -> AsyncIterator[bytes]:
    if url.startswith("file:"):
        path = unquote(urlsplit(url).path)
        with await asyncio.to_thread(open, path, "rb") as source:
            while block := await asyncio.to_thread(source.read, _BLOCK_BYTES):
                yield block
        return
    timeout = aiohttp.ClientTimeout(total=None, connect=STALL_S, sock_read=STALL_S)
    connector = aiohttp.TCPConnector(resolver=_GuardedResolver())
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, auto_decompress=False
    ) as session:
        for _ in range(MAX_REDIRECTS + 1):
            async with session.get(url, allow_redirects=False) as response:
                if response.status in _REDIRECTS:
                    url = parse_url(urljoin(url, response.headers.get("Location", "")), allowed).url
                    continue
                if response.status != 200:
                    raise DownloadFailed(
                        f"Failed to download archive from: {url} (status {response.status})"
                    )
                async for block in response.content.iter_chunked(_BLOCK_BYTES):
                    yield block
                return
    raise DownloadFailed(f"Failed to download archive from: {url} (too many redirects)")


async def _write(blocks: AsyncIterator[bytes], part: Path) -> str:
    """Writes blocks to a new file; returns the sha256 in hex.

    There is no file until there is a first block: until all redirects and addresses are checked.
    """
    digest, size = hashlib.sha256(), 0
    block = await anext(blocks, b"")
    with await asyncio.to_thread(open, part, "xb") as out:
        while block:
            size += len(block)
            if size > MAX_BYTES:
                raise DownloadFailed(f"The archive is larger than {MAX_BYTES} bytes.")
            digest.update(block)
            await asyncio.to_thread(out.write, block)
            block = await anext(blocks, b"")
    return digest.hexdigest()


class _GuardedResolver(AbstractResolver):
    """Resolves names, but to no address that is only ever an attack."""

    def __init__(self) -> None:
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for each in found:
            _check_literal(each["host"])
            if ipaddress.ip_address(each["host"].partition("%")[0]).is_loopback and not (
                host == "localhost" or host.endswith(".localhost")
            ):
                raise ValueError(f"the name {host} stands for this machine itself")
        return found

    async def close(self) -> None:
        await self._inner.close()


def _check_literal(host: str) -> None:
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
