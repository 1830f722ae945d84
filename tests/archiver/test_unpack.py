from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import stat
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marserve.archiver.errors import ArchiveError, ConfigError, MarserveError
from marserve.archiver.members import DEFAULT_LIMITS
from marserve.archiver.unpack import Limits, open_directory, unpack, walk_files

MANIFEST_PATH = "MAR-INF/MANIFEST.json"
MODEL = {"modelName": "m", "handler": "h.py", "modelVersion": "1.0"}
MANIFEST = json.dumps({"runtime": "python", "model": MODEL}).encode()


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def write_zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of duplicate names
        for name, data in members:
            archive.writestr(name, data)
    return path


def tar_entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def refusal(path: Path, tmp_path: Path, limits: Limits = DEFAULT_LIMITS) -> str:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArchiveError) as caught:
        unpack(path, tmp_path / "target", limits)

    assert sorted(tmp_path.rglob("*")) == before, "something was left"
    return str(caught.value)


def test_a_mar_is_extracted_for_its_owner_alone(tmp_path: Path) -> None:
    files = [("h.py", b"code"), ("deep/w.bin", b"x" * 3_000_000), (MANIFEST_PATH, MANIFEST)]
    path = write_zip(tmp_path / "m.mar", *files)
    archive = unpack(path, tmp_path / "target")

    assert archive.directory == tmp_path / "target"
    assert stat.S_IMODE(archive.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((archive.directory / "deep/w.bin").stat().st_mode) == 0o600
    assert (archive.directory / "deep/w.bin").read_bytes() == b"x" * 3_000_000
    assert archive.manifest.model.model_name == "m"
    assert archive.config.raw == {}


def test_a_tar_loses_its_first_component_and_has_the_same_digest(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "m.tar.gz",
        (tar_entry("m", tarfile.DIRTYPE), b""),
        (tar_entry("m/h.py"), b"code"),
        (tar_entry("m/MAR-INF", tarfile.DIRTYPE), b""),
        (tar_entry(f"m/{MANIFEST_PATH}"), MANIFEST),
    )
    mar = write_zip(tmp_path / "m.mar", ("h.py", b"code"), (MANIFEST_PATH, MANIFEST))
    archive = unpack(tar, tmp_path / "a")

    assert (archive.directory / "h.py").read_bytes() == b"code"
    assert archive.digest == unpack(mar, tmp_path / "b").digest


def test_a_tar_of_the_current_directory_is_read_too(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "m.tar.gz",
        (tar_entry("./", tarfile.DIRTYPE), b""),
        (tar_entry("./h.py"), b"code"),
        (tar_entry("single"), b"1"),
    )
    archive = unpack(tar, tmp_path / "a")

    assert sorted(file.name for file in archive.directory.iterdir()) == ["h.py", "single"]


def test_a_missing_manifest_is_allowed(tmp_path: Path) -> None:
    archive = unpack(write_zip(tmp_path / "m.mar", ("w.pt", b"1")), tmp_path / "a")

    assert archive.manifest.runtime == "python"
    assert archive.manifest.model.model_version == "1.0"
    assert archive.manifest.model.model_name == ""


def test_an_only_directory_is_the_root(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.mar", ("x/h.py", b""), (f"x/{MANIFEST_PATH}", MANIFEST))
    archive = unpack(path, tmp_path / "a")

    assert archive.directory == tmp_path / "a" / "x"
    assert archive.manifest.model.handler == "h.py"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "leads out"),
        ("a/../../x", "leads out"),
        ("/etc/x", "absolute"),
        ("C:/x", "absolute"),
        ("c:x", "absolute"),
        ("a\\..\\x", "backslash"),
        ("a\x00.py", "control character"),
        ("a\nb", "control character"),
        ("a//b", "no plain path"),
        ("a/./b", "no plain path"),
        ("", "no plain path"),
        ("n" * 300, "too long"),
        ("d/" * 1100 + "x", "too long"),
        ("mar-inf/MANIFEST.json", "by case alone"),
        ("MAR-INF/Manifest.json", "by case alone"),
    ],
)
def test_a_name_that_is_no_plain_path_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    path = write_zip(tmp_path / "m.mar", ("first", b"1"), (entry(name), b"x"))

    assert reason in refusal(path, tmp_path)
    if name and "\x00" not in name:
        tar = write_tar(tmp_path / "m.tar.gz", (tar_entry("m/" + name), b"x"))
        assert reason in refusal(tar, tmp_path)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "..", "m/../../x", "m\\x"])
def test_a_tar_name_is_looked_at_before_its_first_component_is_dropped(
    tmp_path: Path, name: str
) -> None:
    path = write_tar(tmp_path / "m.tar.gz", (tar_entry(name), b"x"))

    assert "the name" in refusal(path, tmp_path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, kind: int) -> None:
    path = write_zip(tmp_path / "m.mar", (entry("x", kind | 0o777), b"/etc/passwd"))

    assert "only files are allowed" in refusal(path, tmp_path)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = write_tar(tmp_path / "m.tar.gz", (tar_entry("m/x", kind, "/etc/passwd"), b""))

    assert "only files are allowed" in refusal(path, tmp_path)


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", "A"), ("a/b", "a"), ("a", "a/b"), ("a/x", "A/y"), ("é", "e\u0301")]
)
def test_two_members_for_one_file_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    zipped = write_zip(tmp_path / "m.mar", *((name, b"1") for name in names))
    tarred = write_tar(tmp_path / "m.tar.gz", *((tar_entry(f"m/{name}"), b"1") for name in names))

    for path in (zipped, tarred):
        reason = refusal(path, tmp_path)
        assert "twice" in reason or "by case alone" in reason


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.mar", ("x", b"secret"))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)

    assert "encrypted" in refusal(path, tmp_path)


def test_another_compression_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.mar", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x", b"1")

    assert "compression method 12" in refusal(tmp_path / "m.mar", tmp_path)


LOW = Limits(total_bytes=1_000_000, members=5, ratio=50, ratio_floor_bytes=10_000)


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ([2_000_000], "1000000 bytes allowed"),
        ([600_000], "ratio of 50"),
        ([9_000] * 4, "ratio of 50"),
        ([1] * 6, "5 members allowed"),
    ],
)
def test_a_bomb_is_refused(tmp_path: Path, kind: str, sizes: list[int], reason: str) -> None:
    members = [(f"m/{i}", bytes(size)) for i, size in enumerate(sizes)]
    if kind == "zip":
        path = write_zip(tmp_path / "m.mar", *members)
    else:
        path = write_tar(tmp_path / "m.tar.gz", *((tar_entry(name), d) for name, d in members))

    found = refusal(path, tmp_path, LOW)
    assert reason in found or "allowed" in found


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.mar", ("x", bytes(5_000)))
    data = bytearray(path.read_bytes())
    for magic, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        struct.pack_into("<I", data, data.index(magic) + offset, 10)
    path.write_bytes(data)

    assert "broken or incomplete" in refusal(path, tmp_path)


def test_tar_headers_of_any_claimed_size_are_refused_before_they_are_read(tmp_path: Path) -> None:
    info = tar_entry("m/x", tarfile.XHDTYPE)
    info.size = 8 << 30
    path = tmp_path / "m.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048)))

    assert "header" in refusal(path, tmp_path)


def test_global_tar_headers_cannot_pile_up(tmp_path: Path) -> None:
    path = tmp_path / "m.tar.gz"
    headers = {"comment": "x" * 2_000_000}
    with tarfile.open(path, "w:gz", pax_headers=headers) as archive:
        archive.addfile(tar_entry("m/x"), io.BytesIO())

    assert "global headers" in refusal(path, tmp_path)


@pytest.mark.parametrize("name", ["m.mar", "m.tar.gz", "m.model"])
@pytest.mark.parametrize("data", [b"", b"PK", b"hello" * 100, gzip.compress(b"no tar" * 100)])
def test_what_is_no_archive_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)

    assert refusal(tmp_path / name, tmp_path).startswith(name)


def test_a_cut_off_archive_is_refused(tmp_path: Path) -> None:
    noise = hashlib.shake_128(b"seed").digest(100_000)
    for path in (
        write_zip(tmp_path / "m.mar", ("x", noise)),
        write_tar(tmp_path / "m.tar.gz", (tar_entry("m/x"), noise)),
    ):
        path.write_bytes(path.read_bytes()[:60_000])
        assert "broken or incomplete" in refusal(path, tmp_path)


def test_a_missing_archive_or_an_occupied_target_is_an_error(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "no.mar", tmp_path)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").touch()

    assert "not empty" in refusal(write_zip(tmp_path / "m.mar", ("x", b"")), tmp_path)


def signed(digests: dict[str, str]) -> bytes:
    return json.dumps(
        {"runtime": "python", "model": MODEL, "marserve": {"sha256": digests}}
    ).encode()


@pytest.mark.parametrize(
    ("digests", "reason"),
    [
        ({"w": "00", "x": ""}, "w: sha256 is"),
        ({}, ""),
        ({"w": hashlib.sha256(b"1").hexdigest(), "gone": "00"}, "gone: is in the manifest but not"),
        ({"other": "00"}, "w: is in the archive but not in the manifest"),
    ],
)
def test_digests_are_compared_if_there_are_any(
    tmp_path: Path, digests: dict[str, str], reason: str
) -> None:
    path = write_zip(tmp_path / "m.mar", ("w", b"1"), (MANIFEST_PATH, signed(digests)))
    if reason:
        assert reason in refusal(path, tmp_path)
    else:
        assert unpack(path, tmp_path / "target").manifest.digests == {}


def test_the_config_is_read_by_the_schema(tmp_path: Path) -> None:
    manifest = MANIFEST[:-2] + b', "configFile": "c.yaml"}}'
    good = write_zip(tmp_path / "a.mar", ("c.yaml", b"batchSize: 3"), (MANIFEST_PATH, manifest))
    bad = write_zip(tmp_path / "b.mar", ("c.yaml", b"batchSize: x"), (MANIFEST_PATH, manifest))
    missing = write_zip(tmp_path / "c.mar", (MANIFEST_PATH, manifest))

    assert unpack(good, tmp_path / "a").config.batch_size == 3
    with pytest.raises(ConfigError, match=r"c\.yaml: \$\.batchSize: expected int >= 1, got 'x'"):
        unpack(bad, tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert "configFile: 'c.yaml' is not in the archive" in refusal(missing, tmp_path)


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (b"{", "cannot be read as JSON"),
        (b"[]", "expected an object"),
        (b'{"runtime": "python"}', "with the key 'model'"),
        (b'{"runtime": "java", "model": {}}', "$.runtime: expected one of python, python3, LSP"),
        (b'{"runtime": "python", "model": {"modelName": "../x"}}', "$.model.modelName: model name"),
        (b'{"runtime": "python", "model": {"modelName": "x\\n"}}', "$.model.modelName: model name"),
        (b'{"runtime": "python", "model": {"modelName": "x"}}', "$.model.modelVersion: expected"),
        (b'{"runtime": "python", "model": {"modelName": []}}', "expected str, got array"),
        (MANIFEST[:-2] + b', "configFile": "../c.yaml"}}', "$.model.configFile: expected a file"),
        (MANIFEST[:-2] + b', "modelFile": "/m.py"}}', "$.model.modelFile: expected a file"),
        (b"[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_key(
    tmp_path: Path, manifest: bytes, reason: str
) -> None:
    found = refusal(write_zip(tmp_path / "m.mar", (MANIFEST_PATH, manifest)), tmp_path)

    assert f"{MANIFEST_PATH}: " in found
    assert reason in found


def test_a_version_may_be_a_number(tmp_path: Path) -> None:
    manifest = MANIFEST.replace(b'"1.0"', b"1.10").replace(b'"m"', b'"m", "modelFile": null')
    archive = unpack(write_zip(tmp_path / "m.mar", (MANIFEST_PATH, manifest)), tmp_path / "a")

    assert archive.manifest.model.model_version == "1.10"


def test_a_directory_is_used_in_place(tmp_path: Path) -> None:
    root = tmp_path / "store" / "model"
    (root / "MAR-INF").mkdir(parents=True)
    (root / MANIFEST_PATH).write_bytes(MANIFEST)
    (root / "w").write_bytes(b"1")
    archive = open_directory(root)

    assert archive.directory == root
    assert archive.manifest.model.model_name == "m"
    assert open_directory(tmp_path / "store").directory == root
    assert open_directory(root).digest == archive.digest
    (root / "w").write_bytes(b"22")
    assert open_directory(root).digest != archive.digest
    with pytest.raises(ArchiveError, match="no directory"):
        open_directory(root / "w")


def test_links_in_a_directory_are_followed_but_not_in_a_circle(tmp_path: Path) -> None:
    root = tmp_path / "model"
    (root / "a").mkdir(parents=True)
    (tmp_path / "blob").write_text("weights")
    (root / "w").symlink_to(tmp_path / "blob")
    (root / "a/up").symlink_to(root)
    digest = open_directory(root).digest
    (tmp_path / "blob").write_text("other weights")

    assert open_directory(root).digest != digest
    assert [name for name, _ in walk_files(root)] == ["w"]


NAMES = st.text(alphabet="ab./\\: \x00é", max_size=8) | st.sampled_from(["h.py", MANIFEST_PATH])


@settings(max_examples=100, deadline=None)
@given(
    members=st.lists(st.tuples(NAMES, st.binary(max_size=20)), max_size=5),
    kind=st.sampled_from(["m.mar", "m.tar.gz"]),
)
def test_whatever_the_names_nothing_is_written_outside(
    members: list[tuple[str, bytes]], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("any")
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / kind
    with contextlib.suppress(UnicodeError, ValueError):
        if kind == "m.mar":
            write_zip(path, *((entry(name), data) for name, data in members))
        else:
            write_tar(path, *((tar_entry("m/" + name), data) for name, data in members))
    target = tmp_path / "inner" / "target"
    with contextlib.suppress(MarserveError):
        unpack(path, target)
        assert len([file for file in target.rglob("*") if file.is_file()]) == len(members)
    outside = [file for file in tmp_path.rglob("*") if target not in [file, *file.parents]]

    assert {file.name for file in outside} <= {"inner", kind}


@settings(max_examples=100, deadline=None)
@given(
    position=st.integers(0, 2000),
    junk=st.binary(min_size=1, max_size=6),
    kind=st.sampled_from(["m.mar", "m.tar"]),
)
def test_damage_is_noticed_or_harmless(
    position: int, junk: bytes, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("damage")
    body = hashlib.shake_128(b"body").digest(600)
    manifest = signed({"w": hashlib.sha256(body).hexdigest()})
    if kind == "m.mar":
        path = write_zip(tmp_path / "m.mar", ("w", body), (MANIFEST_PATH, manifest))
        data = path.read_bytes()
    else:
        members = [(tar_entry("m/w"), body), (tar_entry(f"m/{MANIFEST_PATH}"), manifest)]
        data = gzip.decompress(write_tar(tmp_path / "t.tar.gz", *members).read_bytes())
    position %= len(data)
    data = data[:position] + junk + data[position + len(junk) :]
    path = tmp_path / ("m.mar" if kind == "m.mar" else "m.tar.gz")
    path.write_bytes(data if kind == "m.mar" else gzip.compress(data))
    with contextlib.suppress(MarserveError):
        archive = unpack(path, tmp_path / "target")
        if archive.manifest.digests:
            assert (archive.directory / "w").read_bytes() == body
