"""Compiled code is run only where no other user can have written it."""

from __future__ import annotations

import os
import stat

import pytest

from kerasish.backends import trust
from kerasish.backends.static.codegen import kernels
from kerasish.backends.static.codegen.description import KernelBuilder

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no POSIX owners")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)
NOBODY = 65534


@pytest.fixture(name="cache")
def _cache(tmp_path, monkeypatch):
    """A cache folder below another one, with one compiled kernel in it."""
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path / "above" / "cache"))
    monkeypatch.setattr(trust, "_warned", set())
    kernels.forget()
    kernels.compile_one(kernel())
    kernels.forget()
    return tmp_path / "above" / "cache" / "kernels"


def kernel():
    k = KernelBuilder()
    k.output(k.input("float32") * 41.0)
    return k.build()


def compiled_and_read():
    before = kernels.statistics.compiled, kernels.statistics.read
    kernels.compile_one(kernel())
    kernels.forget()
    return kernels.statistics.compiled - before[0], kernels.statistics.read - before[1]


def files(cache):
    """The pack, a pointer to it, its folder, the cache's, one above: what must be trusted."""
    (pack,) = (path for path in cache.iterdir() if path.is_file())
    (shelf,) = (path for path in cache.iterdir() if path.is_dir())
    (pointer,) = shelf.iterdir()
    return {
        "pack": pack, "pointer": pointer, "shelf": shelf, "cache": cache,
        "above": cache.parent.parent,
    }  # fmt: skip


PLACES = ["pack", "pointer", "shelf", "cache", "above"]


def test_what_is_written_here_is_trusted(cache):
    assert compiled_and_read() == (0, 1)
    places = files(cache)
    assert stat.S_IMODE(places["pack"].stat().st_mode) == 0o600
    for name in ("shelf", "cache", "above"):
        assert stat.S_IMODE(places[name].stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o002, 0o022])
@pytest.mark.parametrize("place", PLACES)
def test_what_others_can_write_is_not_run(cache, place, mode, monkeypatch):
    monkeypatch.setattr(trust, "_is_private", lambda group: False)
    path = files(cache)[place]
    path.chmod(path.stat().st_mode | mode)
    with pytest.warns(RuntimeWarning, match=rf"{path} can be written by .*chmod go-w it, or set"):
        assert compiled_and_read() == (1, 0)
    # A file is replaced by our own; a folder stays as it is. Neither is complained of again.
    assert compiled_and_read() == ((0, 1) if path.is_file() else (1, 0))


@as_root
@pytest.mark.parametrize("place", PLACES)
def test_what_belongs_to_others_is_not_run(cache, place):
    path = files(cache)[place]
    os.chown(path, NOBODY, NOBODY)
    with pytest.warns(RuntimeWarning, match=rf"{path} belongs to user {NOBODY}, not to user 0"):
        assert compiled_and_read() == (1, 0)
    assert compiled_and_read() == ((0, 1) if path.is_file() else (1, 0))


@as_root
def test_what_belongs_to_root_serves_every_user(cache, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert compiled_and_read() == (0, 1)


@pytest.mark.parametrize("place", ["pack", "pointer", "shelf"])
def test_links_are_not_followed(cache, place, tmp_path):
    path = files(cache)[place]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert compiled_and_read() == (1, 0)


def test_links_above_the_folder_lead_to_what_is_checked(cache, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(cache.parent)
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path / "link"))
    assert compiled_and_read() == (0, 1)
    cache.parent.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="can be written by all users"):
        assert compiled_and_read() == (1, 0)


def test_the_opened_file_is_asked_not_the_path(cache, monkeypatch):
    """Replacing a file between the check of its path and its opening has no effect."""
    pack = files(cache)["pack"]
    pack.chmod(0o666)
    honest = pack.lstat()
    before = os.stat_result([0o100600, *honest[1:]])
    monkeypatch.setattr(os, "stat", lambda *args, **more: before)
    monkeypatch.setattr(os, "lstat", lambda *args, **more: before)
    with (
        trust.open_folder(pack.parent) as folder,
        pytest.raises(trust.UntrustedError, match="mode 0666"),
    ):
        folder.read(pack.name)


def test_pipes_and_folders_are_no_files(cache):
    pack = files(cache)["pack"]
    pack.unlink()
    os.mkfifo(pack, 0o600)  # opening it must not wait for a writer
    with pytest.warns(RuntimeWarning, match="no plain file"):
        assert compiled_and_read() == (1, 0)
    assert compiled_and_read() == (0, 1)


def test_sticky_folders_are_fine_above_but_not_themselves(cache):
    above = files(cache)["above"]
    above.chmod(0o1777)
    assert compiled_and_read() == (0, 1)
    cache.chmod(0o1777)
    with pytest.warns(RuntimeWarning, match=f"{cache} can be written by all users"):
        assert compiled_and_read() == (1, 0)


def test_a_group_of_ones_own_counts_as_oneself(cache, monkeypatch):
    for path in files(cache).values():
        path.chmod(path.stat().st_mode | 0o020)
    monkeypatch.setattr(trust, "_is_private", lambda group: True)
    assert compiled_and_read() == (0, 1)


def test_which_groups_are_ones_own(monkeypatch):
    import grp
    import pwd
    from types import SimpleNamespace

    members = {5: [], 6: [], 7: ["ann", "bob"]}
    names = {5: "ann", 6: "staff", 7: "ann"}
    primary = SimpleNamespace(pw_name="ann", pw_gid=5)
    monkeypatch.setattr(pwd, "getpwuid", lambda user: primary)
    monkeypatch.setattr(
        grp, "getgrgid", lambda n: SimpleNamespace(gr_name=names[n], gr_mem=members[n])
    )
    decide = trust._is_private.__wrapped__
    assert decide(5)
    assert not decide(6)
    primary.pw_gid = 7
    assert not decide(7)


def test_nothing_is_written_where_it_would_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "_warned", set())
    tmp_path.chmod(0o777)
    monkeypatch.setenv("KERASISH_CACHE_DIR", str(tmp_path / "cache"))
    kernels.forget()
    with pytest.warns(RuntimeWarning, match=f"{tmp_path} can be written by all users"):
        assert compiled_and_read() == (1, 0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    tmp_path.chmod(0o700)
