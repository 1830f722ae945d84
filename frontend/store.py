"""The model store: finds archives by name, directory or allowed URL, and makes their files ready.

What is extracted is under one private temporary directory a server, which is removed at the end;
one that a killed server left behind is removed by the next.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marserve.archiver.errors import ArchiveError, ConfigError
from marserve.archiver.foreign import format_of, served_below
from marserve.archiver.model_file import is_model_file, open_model_file
from marserve.archiver.unpack import Archive, open_directory, unpack
from marserve.frontend.errors import InvalidModel, ModelNotFound
from marserve.frontend.partial import sweep_parts
from marserve.frontend.scratch import ScratchDirectory
from marserve.frontend.uploads import write_model
from marserve.frontend.urls import Remote, is_url, parse_url

if TYPE_CHECKING:
    from marserve.frontend.config import ServerConfig

logger = logging.getLogger(__name__)

ARCHIVE_ENDINGS = (".mar", ".model", ".tar.gz", ".tgz")


class ModelStore:
    """Archives by the names and URLs that clients use.

    Args:
        config: ``model_store`` and ``allowed_urls`` are read.
        root: Where the archives are; None for the model store.
    """

    def __init__(self, config: ServerConfig, root: Path | None = None) -> None:
        self._root = Path(config.model_store) if root is None else root
        self._allowed = config.allowed_urls
        self._scratch = ScratchDirectory(Path(tempfile.gettempdir()))
        self._unpacked: dict[Path, Path] = {}
        """An archive's directory, to what it was extracted into."""
        sweep_parts(self._root)

    async def fetch(self, url: str, *, reuse: bool = False) -> Archive:
        """Makes the files of an archive ready.

        Args:
            url: File or directory name in the model store, absolute directory, or allowed URL.
            reuse: Whether the file of a URL that is in the store already is taken as it is: a
                server that starts again needs no network.

        Returns:
            Extracted to a directory of its own; a directory is used where it is.

        Raises:
            ModelNotFound: If there is no such archive, or the URL is not allowed.
            DownloadFailed: If it cannot be fetched.
            InternalError: If a file of that name is in the store already.
            InvalidModel: If it is broken, hostile, or its configuration is wrong.
        """
        kept = await self._kept(url) if reuse else None
        path = kept or await self.obtain(url)
        try:
            return await self._unpack(path, url)
        except BaseException:
            if is_url(url) and kept is None:
                path.unlink(missing_ok=True)  # the store is as it was
            raise

    async def obtain(self, url: str, *, reuse: bool = False) -> Path:
        """Returns the file or directory that ``fetch`` would open, downloaded if it has to be.

        Raises:
            ModelNotFound: If there is no such archive, or the URL is not allowed.
            DownloadFailed: If it cannot be fetched.
            InternalError: If a file of that name is in the store already.
        """
        _check(url)
        if reuse and (kept := await self._kept(url)) is not None:
            return kept
        if is_url(url):
            remote = parse_url(url, self._allowed)
            # Imported now: its HTTP client takes long to import, and most servers never download.
            from marserve.frontend.download import download

            return await download(remote, self._root, self._allowed)
        return await asyncio.to_thread(self._find, url)

    async def _kept(self, url: str) -> Path | None:
        """Returns the file of an allowed URL, if an earlier server has fetched it."""
        if not is_url(url):
            return None
        remote = parse_url(url, self._allowed)
        path = self._root / remote.filename
        if not await asyncio.to_thread(_is_whole, path, remote.sha256):
            return None
        logger.info("%s is in the model store already and used as it is", remote.filename)
        return path

    def new_directory(self) -> Path:
        """Returns a path that is free, in the private directory of what is extracted."""
        return self._scratch.path / uuid.uuid4().hex

    def locate(self, url: str) -> Path | None:
        """Returns the file in the store that ``fetch`` would unpack; None if there is none yet."""
        try:
            _check(url)
            path = None if is_url(url) else self._find(url)
        except ModelNotFound:
            return None
        return path if path is not None and path.is_file() else None

    async def keep(
        self, name: str, config: Mapping[str, Any], files: Mapping[str, bytes]
    ) -> list[Archive]:
        """Writes a model that came with a call; returns its versions, the default one first.

        Raises:
            InvalidModel: If it is wrong.
        """
        try:
            archives = await asyncio.to_thread(write_model, self.new_directory, name, config, files)
        except (ArchiveError, ConfigError) as error:
            raise InvalidModel(f"{name}: {self.without_paths(str(error))}") from error
        except OSError as error:
            raise InvalidModel(f"{name}: cannot be written: {error.strerror}") from error
        self._unpacked |= {each.directory: each.directory.parent for each in archives}
        return archives

    async def release(self, archive: Archive, url: str) -> None:
        """Removes what ``fetch`` made: extracted files, and the file of a URL from the store."""
        await self.discard(self._unpacked.pop(archive.directory, None), url)

    async def discard(self, directory: os.PathLike[str] | None, url: str) -> None:
        """Removes extracted files, and the file of a URL from the store."""
        if directory is not None:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        if is_url(url):
            remote: Remote = parse_url(url, self._allowed)
            await asyncio.to_thread((self._root / remote.filename).unlink, missing_ok=True)

    def available(self) -> list[str]:
        """Returns the sorted names of all archives and directories of the store but hidden ones.

        Where models of another server are deeper in a directory, those are named, as paths
        relative to the store. A store that is such a folder itself has the name ``.``.
        """
        if not self._root.is_dir():
            return []
        if format_of(self._root) is not None:
            return ["."]
        found: list[str] = []
        for entry in self._root.iterdir():
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                groups = served_below(entry)
                found += (f"{entry.name}/{path}".rstrip("/") for each in groups for path in each)
            elif entry.name.endswith(ARCHIVE_ENDINGS):
                found.append(entry.name)
        return sorted(found)

    def versions_at(self, url: str) -> list[str]:
        """Returns what has to be fetched for all versions that a folder of the store holds."""
        folder = self._root / url
        if is_url(url) or ".." in url or os.path.isabs(url) or not os.path.isdir(folder):
            return [url]
        return [f"{url}/{path}".rstrip("/") for each in served_below(folder) for path in each]

    def urls_of(self, name: str) -> list[str]:
        """Returns what has to be fetched to serve a model: its versions, the default one first.

        Args:
            name: Of the model; of a file, also without its ending.
        """
        paths = self.by_name().get(name, [])
        return [path.relative_to(self._root).as_posix() for path in paths]

    def is_folder(self, url: str) -> bool:
        """Tells whether what a name stands for is a folder that is served where it is."""
        return (self._root / url).is_dir()

    def by_name(self) -> dict[str, list[Path]]:
        """Returns the versions of each model of the store, the default one first, by its name.

        A model that cannot be read is there under the name of its folder.
        """
        found: dict[str, list[Path]] = {}
        for url in self.available():
            path = self._root / url
            found.setdefault(_model_name(path), []).append(path)
        for paths in found.values():
            if all(path.name.isdecimal() for path in paths):
                paths.sort(key=lambda path: -int(path.name))
        return found

    def close(self) -> None:
        """Removes everything that was extracted."""
        self._scratch.close()

    def _find(self, url: str) -> Path:
        """The file or directory that a name stands for.

        Raises:
            ModelNotFound: If there is none, or it is a link out of the store.
        """
        if not self._root.is_dir():
            raise ModelNotFound("Model store has not been configured.")
        path = self._root / os.path.basename(url.rstrip("/"))
        nested = self._root / url.lstrip("/")
        if "/" in url and os.path.isdir(nested) and format_of(nested) is not None:
            return nested
        if os.path.isfile(path):  # unlike is_file, false for names that no file can have
            root = os.path.realpath(self._root)
            if os.path.commonpath([root, os.path.realpath(path)]) != root:
                raise ModelNotFound(f"Model not found at: {url} (it is a link out of the store)")
            return path
        if os.path.isabs(url) and os.path.isdir(url):
            return Path(url)
        if os.path.isdir(path):
            return path
        raise ModelNotFound(f"Model not found at: {url}")

    async def _unpack(self, path: Path, url: str) -> Archive:
        try:
            if await asyncio.to_thread(path.is_dir):
                return await asyncio.to_thread(open_directory, path)
            target = self.new_directory()
            opens = open_model_file if is_model_file(path) else unpack
            archive = await asyncio.to_thread(opens, path, target)
        except (ArchiveError, ConfigError) as error:
            raise InvalidModel(f"{url}: {self.without_paths(str(error))}") from error
        except OSError as error:
            logger.warning("%s cannot be unpacked: %s", path, error)
            raise InvalidModel(f"{url}: cannot be read: {error.strerror}") from error
        self._unpacked[archive.directory] = target
        return archive

    def without_paths(self, text: str) -> str:
        """Returns a text without the places where the server keeps its files."""
        for root in {str(self._root), os.path.realpath(self._root), str(self._scratch.path)}:
            text = text.replace(f"{root}{os.sep}", "")
        return text


def _model_name(path: Path) -> str:
    """The name that a model of the store will have, unless a packed archive says otherwise."""
    if not path.is_dir():
        return next(
            path.name.removesuffix(end) for end in ARCHIVE_ENDINGS if path.name.endswith(end)
        )
    if path.name.isdecimal():
        return path.parent.name
    try:
        return open_directory(path).manifest.model.model_name or path.name
    except (ArchiveError, ConfigError, OSError):
        return path.name


def _is_whole(path: Path, sha256: str) -> bool:
    """Whether there is such a file, with the hash that is asked for, if one is."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return not sha256 or hashlib.file_digest(file, "sha256").hexdigest() == sha256


def _check(url: str) -> None:
    if not url:
        raise ModelNotFound("empty url")
    shown = url[:200]
    if ".." in url:
        raise ModelNotFound(f"Relative path is not allowed in url: {shown}")
    if "\0" in url or len(url) > 4096:
        raise ModelNotFound(f"Model not found at: {shown}")
