"""Fetches archives from allowed URLs into the model store: checked first, written whole or not.

Every redirect is compared with what is allowed again, and names that lead to link-local addresses
(where clouds keep credentials) or to this machine itself are refused on connecting, so that a name
cannot change its mind. Other private addresses are where model stores are: a pattern that names
them allows them.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from marserve.frontend.errors import DownloadFailed, InternalError
from marserve.frontend.partial import new_part
from marserve.frontend.urls import Remote, parse_url, refuse_addresses

logger = logging.getLogger(__name__)

MAX_REDIRECTS = 5
MAX_BYTES = 256 << 30
STALL_S = 60.0
"""A download that makes no progress for so long has failed."""

_BLOCK_BYTES = 1 << 20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


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
    part = new_part(store)
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
            refuse_addresses(each["host"])
            if ipaddress.ip_address(each["host"].partition("%")[0]).is_loopback and not (
                host == "localhost" or host.endswith(".localhost")
            ):
                raise ValueError(f"the name {host} stands for this machine itself")
        return found

    async def close(self) -> None:
        await self._inner.close()
