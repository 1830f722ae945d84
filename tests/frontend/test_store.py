from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.frontend.config import ServerConfig
from marserve.frontend.errors import DownloadFailed, InternalError, InvalidModel, ModelNotFound
from marserve.frontend.scratch import ScratchDirectory
from marserve.frontend.store import ModelStore
from marserve.frontend.urls import parse_url

MANIFEST = json.dumps(
    {"runtime": "python", "model": {"modelName": "m", "handler": "h.py", "modelVersion": "1.0"}}
)
FILES = {"h.py": "def handle(data, context): return data", "MAR-INF/MANIFEST.json": MANIFEST}
ANY_HTTP = re.compile("https?://.*", re.IGNORECASE)


def mar_bytes() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return out.getvalue()


def tar_bytes() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"m/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return out.getvalue()


def write_directory(path: Path) -> Path:
    for name, content in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    return path


MakeStore = Callable[..., ModelStore]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


@pytest.fixture
def make(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def build(*allowed: re.Pattern[str]) -> ModelStore:
        return ModelStore(ServerConfig(model_store=root, allowed_urls=allowed))

    return build


@pytest.mark.parametrize(("name", "data"), [("m.mar", mar_bytes()), ("m.tar.gz", tar_bytes())])
async def test_archive(make: MakeStore, root: Path, name: str, data: bytes) -> None:
    (root / name).write_bytes(data)
    store = make()
    first, second = await store.fetch(name), await store.fetch(f"elsewhere/{name}")

    assert first.manifest.model.model_name == "m"
    assert (first.directory / "h.py").read_text() == FILES["h.py"]
    assert first.directory != second.directory

    await store.release(first, name)
    assert not first.directory.exists()
    assert second.directory.exists()
    assert (root / name).exists()
    store.close()
    assert not second.directory.exists()


async def test_nothing_is_left_of_an_archive_with_one_folder(make: MakeStore, root: Path) -> None:
    with zipfile.ZipFile(root / "m.mar", "w") as file:
        for name, content in FILES.items():
            file.writestr(f"m/{name}", content)
    store = make()
    archive = await store.fetch("m.mar")
    target = archive.directory.parent

    assert archive.directory.name == "m"
    await store.release(archive, "m.mar")
    assert not target.exists()


async def test_directory_is_used_in_place(make: MakeStore, root: Path, tmp_path: Path) -> None:
    inside, outside = write_directory(root / "m"), write_directory(tmp_path / "elsewhere")
    store = make()
    by_name, by_path = await store.fetch("m"), await store.fetch(str(outside))

    assert (by_name.directory, by_path.directory) == (inside, outside)
    await store.release(by_name, "m")
    store.close()
    assert inside.exists()


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("", "empty url"),
        ("../m.mar", "Relative path is not allowed in url: ../m.mar"),
        ("a/../../m.mar", "Relative path is not allowed"),
        ("none.mar", "Model not found at: none.mar"),
        ("m\0.mar", "Model not found"),
        ("x" * 5000, "Model not found"),
        ("/etc/passwd", "Model not found at: /etc/passwd"),
        ("http://h/m.mar", "Given URL http://h/m.mar does not match any allowed URL"),
        ("file:///etc/passwd", "does not match any allowed URL"),
        ("ftp://h/m.mar", "does not match any allowed URL"),
        ("s3://h/m.mar", "does not match any allowed URL"),
    ],
)
async def test_refused(make: MakeStore, root: Path, url: str, match: str) -> None:
    with pytest.raises(ModelNotFound, match=match):
        await make().fetch(url)
    assert list(root.iterdir()) == []


async def test_no_store(make: MakeStore, root: Path) -> None:
    store = make()
    root.rmdir()

    with pytest.raises(ModelNotFound, match="Model store has not been configured"):
        await store.fetch("m.mar")
    assert store.available() == []


async def test_links_do_not_lead_out_of_the_store(
    make: MakeStore, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "out.mar").write_bytes(mar_bytes())
    (root / "m.mar").symlink_to(tmp_path / "out.mar")

    with pytest.raises(ModelNotFound, match="link out of the store"):
        await make().fetch("m.mar")


async def test_broken_archive(make: MakeStore, root: Path) -> None:
    (root / "m.mar").write_bytes(b"PK nonsense")
    store = make()

    with pytest.raises(InvalidModel, match=r"m\.mar") as error:
        await store.fetch("m.mar")
    assert str(root) not in error.value.message
    assert tempfile.gettempdir() not in error.value.message


async def test_available(make: MakeStore, root: Path) -> None:
    for name in ("b.mar", "a.tar.gz", "c.model", "d.txt", ".hidden.mar"):
        (root / name).touch()
    (root / "dir").mkdir()

    assert make().available() == ["a.tar.gz", "b.mar", "c.model", "dir"]


# -- URLs ----------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[BaseTestServer]:
    async def serve(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name == "away.mar":
            raise web.HTTPFound("http://127.0.0.1:1/secret.mar")
        if name == "loop.mar":
            raise web.HTTPFound("/loop.mar")
        if name == "moved.mar":
            raise web.HTTPFound("/m.mar")
        if name == "broken.mar":
            return web.Response(body=b"PK nonsense")
        if name != "m.mar":
            raise web.HTTPNotFound
        return web.Response(body=mar_bytes())

    app = web.Application()
    app.router.add_get("/{name}", serve)
    async with TestServer(app, host="127.0.0.1") as running:
        yield running


def allow(server: BaseTestServer) -> re.Pattern[str]:
    return re.compile(re.escape(str(server.make_url("/"))) + ".*")


async def test_download(make: MakeStore, root: Path, server: BaseTestServer) -> None:
    url = str(server.make_url("/m.mar"))
    store = make(allow(server))
    archive = await store.fetch(url)

    assert archive.manifest.model.model_name == "m"
    assert os.listdir(root) == ["m.mar"]
    with pytest.raises(InternalError, match=r"Model file already exists m\.mar"):
        await store.fetch(url)
    await store.release(archive, url)
    assert os.listdir(root) == []


async def test_checksum(make: MakeStore, root: Path, server: BaseTestServer) -> None:
    url = str(server.make_url("/m.mar"))
    store = make(allow(server))

    with pytest.raises(DownloadFailed, match="has the sha256"):
        await store.fetch(f"{url}#sha256={'0' * 64}")
    assert os.listdir(root) == []
    digest = hashlib.sha256(mar_bytes()).hexdigest()
    archive = await store.fetch(f"{url}#sha256={digest}")
    assert archive.manifest.model.model_name == "m"


async def test_redirects(make: MakeStore, root: Path, server: BaseTestServer) -> None:
    store = make(allow(server))

    with pytest.raises(ModelNotFound, match=r"127\.0\.0\.1:1/secret.mar does not match"):
        await store.fetch(str(server.make_url("/away.mar")))
    with pytest.raises(DownloadFailed, match="too many redirects"):
        await store.fetch(str(server.make_url("/loop.mar")))
    assert os.listdir(root) == []
    archive = await store.fetch(str(server.make_url("/moved.mar")))
    assert archive.manifest.model.model_name == "m"


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "2852039166"])
async def test_what_a_name_stands_for_is_checked_before_anything_is_written(
    make: MakeStore, root: Path, server: BaseTestServer, host: str
) -> None:
    """Numbers that are no addresses as such resolve to this machine, and to that of metadata."""
    store, before = make(ANY_HTTP), root.stat().st_mtime_ns

    with pytest.raises(DownloadFailed, match="Failed to download archive from"):
        await store.fetch(f"http://{host}:{server.port}/m.mar")
    assert root.stat().st_mtime_ns == before, "a file came and went"


async def test_localhost_is_a_name_like_others(
    make: MakeStore, root: Path, server: BaseTestServer
) -> None:
    store = make(re.compile("http://localhost:.*"))
    archive = await store.fetch(f"http://localhost:{server.port}/m.mar")

    assert archive.manifest.model.model_name == "m"


async def test_failed_downloads_leave_nothing(
    make: MakeStore, root: Path, server: BaseTestServer
) -> None:
    store = make(ANY_HTTP)

    with pytest.raises(DownloadFailed, match=r"Failed to download archive from: .*status 404"):
        await store.fetch(str(server.make_url("/none.mar")))
    with pytest.raises(DownloadFailed, match=r"Failed to download archive from: .*:1/m\.mar"):
        await store.fetch("http://127.0.0.1:1/m.mar")
    with pytest.raises(InvalidModel):
        await store.fetch(str(server.make_url("/broken.mar")))
    assert os.listdir(root) == []


async def test_file_urls(make: MakeStore, root: Path, tmp_path: Path) -> None:
    (tmp_path / "m.mar").write_bytes(mar_bytes())
    store = make(re.compile(f"file://{re.escape(str(tmp_path))}/.*"))

    archive = await store.fetch(f"file://{tmp_path}/m.mar")
    assert archive.manifest.model.model_name == "m"
    (tmp_path / "link.mar").symlink_to("/etc/passwd")
    with pytest.raises(ModelNotFound, match="does not match"):
        await store.fetch(f"file://{tmp_path}/link.mar")


@pytest.mark.parametrize(
    "url",
    [
        "http://good@evil.test/m.mar",
        "http://good:x@evil.test/m.mar",
        "http://good\\@evil.test/m.mar",
        "http://good/%2e%2e/m.mar",
        "http://good/a b.mar",
        "http://169.254.169.254/m.mar",
        "http://[fe80::1]/m.mar",
        "http://[::ffff:169.254.169.254]/m.mar",
        "http://[64:ff9b::a9fe:a9fe]/m.mar",
        "http://[2002:a9fe:a9fe::1]/m.mar",
        "http://[fd00:ec2::254]/m.mar",
        "http://100.100.100.200/m.mar",
        "http://0.0.0.0/m.mar",
        "http:///m.mar",
        "http://good/",
        "http://good/.hidden",
        "http://good/a%2f.mar/",
        "http://good/m.mar#sha256=1",
        "http://[::1/m.mar",
        "file://elsewhere/m.mar",
    ],
)
def test_urls_that_no_pattern_allows(url: str) -> None:
    with pytest.raises(ModelNotFound):
        parse_url(url, [re.compile(".*")])


def test_url_is_compared_in_normal_form() -> None:
    pattern = re.compile("http://good/models/.*")

    remote = parse_url("HTTP://GOOD/%6dodels/a%20b.mar?x=1", [pattern])
    assert remote.url == "http://good/models/a%20b.mar?x=1"
    assert remote.filename == "a b.mar"
    with pytest.raises(ModelNotFound):
        parse_url("http://good.evil/models/a.mar", [pattern])


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_file_names_never_leave_the_store(text: str) -> None:
    try:
        remote = parse_url(f"http://h/{text}", [re.compile(".*")])
    except ModelNotFound:
        return
    assert os.path.basename(remote.filename) == remote.filename
    assert remote.filename not in ("", ".", "..")


# -- scratch -------------------------------------------------------------------------------------


def test_scratch_is_private_and_removed(tmp_path: Path) -> None:
    scratch = ScratchDirectory(tmp_path)
    other = ScratchDirectory(tmp_path)

    assert scratch.path.stat().st_mode & 0o777 == 0o700
    assert scratch.path.is_dir()
    scratch.close()
    scratch.close()
    assert list(tmp_path.iterdir()) == [other.path]
    other.close()


def test_scratch_of_a_killed_server_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from marserve.frontend.scratch import ScratchDirectory\n"
        "d = ScratchDirectory(Path(sys.argv[1])); (d.path / 'x').touch()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60)
    (tmp_path / "marserve-link-1").symlink_to("/")
    left = len(list(tmp_path.iterdir()))
    scratch = ScratchDirectory(tmp_path)

    assert left == 2
    assert {p.name for p in tmp_path.iterdir()} == {scratch.path.name, "marserve-link-1"}
    scratch.close()
