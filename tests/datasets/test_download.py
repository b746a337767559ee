"""get_file: complete or not there, checked, unpacked safely; all against a server on loopback."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kerasish.datasets.download import cache_root, get_file

BODY = b"some bytes " * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY).hexdigest()


def serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    return server, thread, f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder served at `.url`; requests are listed in `.asked`."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "served"
    root.mkdir()
    asked = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            asked.append(self.path)

    server, thread, url = serve(partial(Quiet, directory=str(root)))
    (root / "data.bin").write_bytes(BODY)

    class Folder:
        path, cache = root, tmp_path / "cache"

    Folder.url, Folder.asked = url, asked
    yield Folder
    server.shutdown()
    thread.join()
    server.server_close()


def files_in(path):
    return sorted(str(p.relative_to(path)) for p in Path(path).rglob("*") if p.is_file())


@pytest.mark.parametrize("file_hash", [None, SHA256, SHA256.upper(), MD5])
def test_a_file_is_downloaded_once(folder, file_hash):
    for _ in range(2):
        path = get_file(
            "name.bin", f"{folder.url}/data.bin", file_hash=file_hash, cache_dir=folder.cache
        )
    assert path == str(folder.cache / "datasets" / "name.bin")
    assert Path(path).read_bytes() == BODY
    assert folder.asked == ["/data.bin"]
    assert files_in(folder.cache) == ["datasets/name.bin"]


def test_the_name_comes_from_the_url(folder):
    path = get_file(
        origin=f"{folder.url}/data.bin?version=2", cache_dir=folder.cache, cache_subdir="other"
    )
    assert path == str(folder.cache / "other" / "data.bin")


def test_force_download_and_the_old_md5_argument(folder):
    for _ in range(2):
        get_file(
            origin=f"{folder.url}/data.bin",
            md5_hash=MD5,
            cache_dir=folder.cache,
            force_download=True,
        )
    assert len(folder.asked) == 2


def test_a_damaged_file_is_downloaded_again(folder):
    options = {"origin": f"{folder.url}/data.bin", "file_hash": SHA256, "cache_dir": folder.cache}
    path = Path(get_file(**options))
    path.write_bytes(BODY[:-1])
    with pytest.warns(UserWarning, match=r"data\.bin is incomplete or outdated"):
        get_file(**options)
    assert path.read_bytes() == BODY


def test_a_wrong_checksum_leaves_nothing(folder):
    with pytest.raises(ValueError, match=rf"the sha256 of the download is {SHA256}, expected 0+\."):
        get_file(origin=f"{folder.url}/data.bin", file_hash="0" * 64, cache_dir=folder.cache)
    assert files_in(folder.cache) == []


def test_a_failed_download_keeps_the_old_file(folder):
    old = folder.cache / "datasets" / "data.bin"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    with pytest.raises(ConnectionError):
        get_file("data.bin", f"{folder.url}/gone.bin", cache_dir=folder.cache, force_download=True)
    assert old.read_bytes() == b"old"
    assert files_in(folder.cache) == ["datasets/data.bin"]


def test_a_missing_file_names_the_url_and_the_way_out(folder):
    with pytest.raises(ConnectionError, match=r"gone\.bin: 404 .*put the file at .*gone\.bin"):
        get_file(origin=f"{folder.url}/gone.bin", cache_dir=folder.cache)


def test_offline_is_a_clear_error(folder):
    server, thread, url = serve(BaseHTTPRequestHandler)
    server.shutdown()
    thread.join()
    server.server_close()  # now no server listens there
    with pytest.raises(ConnectionError, match=r"Could not download .*KERASISH_DATASETS_URL"):
        get_file(origin=f"{url}/data.bin", cache_dir=folder.cache)
    assert files_in(folder.cache) == []


def test_a_connection_that_breaks_leaves_nothing(folder):
    class Short(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY[:100])

        def log_message(self, *args):
            pass

    server, thread, url = serve(Short)
    with pytest.raises(ConnectionError, match="Could not download"):
        get_file(origin=f"{url}/data.bin", cache_dir=folder.cache)
    server.shutdown()
    thread.join()
    server.server_close()
    assert files_in(folder.cache) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, '"origin"'),
        ({"origin": "http://127.0.0.1/"}, "no file name"),
        ({"fname": "../up", "origin": "http://127.0.0.1/a"}, r"without folders, got '\.\./up'"),
        ({"fname": "/etc/x", "origin": "http://127.0.0.1/a"}, "without folders"),
        ({"fname": "..", "origin": "http://127.0.0.1/a"}, "without folders"),
        ({"origin": "gopher://127.0.0.1/a"}, "http, https, ftp, file, got 'gopher"),
        ({"origin": "http://127.0.0.1/a", "file_hash": "abc"}, "hash of 3 digits"),
    ],
)
def test_bad_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        get_file(cache_dir=tmp_path, **arguments)


def test_the_cache_is_kerass(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "mine"))
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".keras"
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file"))
    assert cache_root().name == ".keras"
    assert cache_root() != tmp_path / "file"


# ------------------------------------------------------------------------------------ archives


def make_tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for member in members:
            if isinstance(member, str):
                member = tarfile.TarInfo(member)
                member.size = len(BODY)
            tar.addfile(member, io.BytesIO(BODY))


def make_zip(path, *names):
    with zipfile.ZipFile(path, "w") as zipped:
        for name in names:
            zipped.writestr(name, BODY)


@pytest.mark.parametrize("flag", ["extract", "untar"])
@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar", "a.tar.xz", "a.zip"])
def test_archives_are_unpacked(folder, name, flag):
    if name.endswith("zip"):
        make_zip(folder.path / name, "top/one.txt", "top/in/two.txt")
    else:
        mode = {"gz": "w:gz", "ar": "w", "xz": "w:xz"}[name[-2:]]
        make_tar(folder.path / name, "top/one.txt", "./top/in/two.txt", mode=mode)
    for _ in range(2):
        path = get_file("set", f"{folder.url}/{name}", cache_dir=folder.cache, **{flag: True})
    assert path == str(folder.cache / "datasets" / "set")
    assert files_in(path) == ["top/in/two.txt", "top/one.txt"]
    assert (Path(path) / "top/one.txt").read_bytes() == BODY
    assert len(folder.asked) == 1
    assert sorted(os.listdir(folder.cache / "datasets")) == ["set", "set_archive"]


def link(kind, name="top/link", target="/etc/passwd"):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


UNSAFE = {
    "up": "../up.txt",
    "up in the middle": "top/../../up.txt",
    "symbolic link": link(tarfile.SYMTYPE),
    "relative symbolic link": link(tarfile.SYMTYPE, target="../../up.txt"),
    "hard link": link(tarfile.LNKTYPE, target="../up.txt"),
    "device": link(tarfile.CHRTYPE),
    "pipe": link(tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("kind", UNSAFE)
def test_unsafe_members_of_a_tar_are_refused(folder, kind):
    make_tar(folder.path / "bad.tar.gz", "top/one.txt", UNSAFE[kind])
    with pytest.raises(ValueError, match="unsafe or damaged"):
        get_file("set", f"{folder.url}/bad.tar.gz", extract=True, cache_dir=folder.cache)
    assert files_in(folder.cache) == ["datasets/set_archive"]
    assert os.listdir(folder.cache / "datasets") == ["set_archive"]


@pytest.mark.parametrize("member", ["/top/one.txt", "../two.txt"])
@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_names_outside_of_the_folder_are_refused(folder, kind, member):
    (make_zip if kind == "zip" else make_tar)(folder.path / f"a.{kind}", member)
    with pytest.raises(ValueError, match="nothing is unpacked"):
        get_file(f"set.{kind}", f"{folder.url}/a.{kind}", extract=True, cache_dir=folder.cache)
    assert not list(folder.cache.rglob("*.txt"))


def test_links_in_a_zip_become_files(folder):
    with zipfile.ZipFile(folder.path / "a.zip", "w") as zipped:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        zipped.writestr(info, "/etc/passwd")
    path = get_file("set", f"{folder.url}/a.zip", extract=True, cache_dir=folder.cache)
    assert not Path(path, "link").is_symlink()
    assert Path(path, "link").read_text() == "/etc/passwd"


def test_archives_cut_off_leave_nothing(folder):
    make_tar(folder.path / "a.tar.gz", *(f"{i}.txt" for i in range(300)))
    whole = (folder.path / "a.tar.gz").read_bytes()
    (folder.path / "a.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="unsafe or damaged"):
        get_file("set", f"{folder.url}/a.tar.gz", extract=True, cache_dir=folder.cache)
    assert os.listdir(folder.cache / "datasets") == ["set_archive"]


def test_a_python_without_filters_is_an_error(folder, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    make_tar(folder.path / "a.tar.gz", "one.txt")
    with pytest.raises(RuntimeError, match=r"3\.10\.12"):
        get_file("set", f"{folder.url}/a.tar.gz", extract=True, cache_dir=folder.cache)


@pytest.mark.parametrize("formats", ["auto", "tar", ["zip"], ("tar", "zip"), None])
def test_what_is_no_archive_is_an_error(folder, formats):
    with pytest.raises(ValueError, match="expected an archive of format"):
        get_file(
            origin=f"{folder.url}/data.bin",
            extract=True,
            archive_format=formats,
            cache_dir=folder.cache,
        )


def test_unknown_formats_are_named(folder):
    make_tar(folder.path / "a.tar.gz", "one.txt")
    with pytest.raises(ValueError, match="'auto', 'tar' or 'zip', got 'rar'"):
        get_file(
            origin=f"{folder.url}/a.tar.gz",
            extract=True,
            archive_format="rar",
            cache_dir=folder.cache,
        )


def test_a_new_archive_replaces_what_was_unpacked(folder):
    options = {"extract": True, "cache_dir": folder.cache}
    make_tar(folder.path / "a.tar.gz", "old.txt")
    get_file("set", f"{folder.url}/a.tar.gz", **options)
    make_tar(folder.path / "a.tar.gz", "new.txt")
    path = get_file("set", f"{folder.url}/a.tar.gz", force_download=True, **options)
    assert files_in(path) == ["new.txt"]
