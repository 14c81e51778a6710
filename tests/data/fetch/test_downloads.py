"""Downloads from a server of the test's own: resume, mirrors, checksums, pages, room, offline."""

import hashlib
import shutil
from types import SimpleNamespace

import pooch
import pytest
from download_server import archive_of

from holdfast.cli.main import main
from holdfast.data.fetch import downloads, transfer
from holdfast.data.fetch.catalogue import CATALOGUE, Entry, Remote


def is_whole(root):
    return (root / "Toy/fog.npy").read_bytes() == b"fog" * 30_000 and (
        sorted(path.name for path in root.iterdir()) == ["Toy"]
    )


def test_get_downloads_checks_and_unpacks_once(server, known, capsys):
    assert main(["data", "get", "toy", "--root", str(known.root)]) == 0
    assert capsys.readouterr().out == f"{known.root / 'Toy'}\n"
    assert is_whole(known.root)
    assert [path for path, _ in server.asked] == ["/first/toy.tar?download=1"]
    assert main(["data", "get", "toy", "--root", str(known.root)]) == 0
    assert len(server.asked) == 1


def test_an_archive_can_be_kept_and_is_used_again(server, known):
    downloads.get("toy", known.root, keep=True)
    assert (known.root / "toy.tar").read_bytes() == known.body
    shutil.rmtree(known.root / "Toy")
    downloads.get("toy", known.root)
    assert is_whole(known.root) and len(server.asked) == 1


def test_a_broken_connection_is_gone_on_with(server, known):
    server.break_after = 40_000
    downloads.get("toy", known.root)
    assert is_whole(known.root)
    starts = [asked for _, asked in server.asked]
    assert starts == [None, "bytes=40000-", "bytes=80000-"]


def test_a_connection_that_brings_nothing_is_given_up(server, known, capsys):
    server.break_after = 0
    assert "the connection broke after 0 of" in fails(capsys, known)
    server.break_after = 300
    known.root.joinpath("toy.tar.part").write_bytes(known.body[:500])
    server.files = {path: body[:900] for path, body in server.files.items()}
    fails(capsys, known)  # the server's file is another, shorter one


def test_a_server_that_falls_silent_is_given_up(server, known, capsys, monkeypatch):
    monkeypatch.setattr(transfer, "TIMEOUT", 0.2)
    server.mood = "silent"
    assert fails(capsys, known).count("timed out") == 2  # both addresses
    assert len(server.asked) == 2


def test_another_process_goes_on_where_one_was_killed(server, known):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(known.body[:12_345])
    downloads.get("toy", known.root)
    assert is_whole(known.root)
    assert server.asked == [("/first/toy.tar?download=1", "bytes=12345-")]


def test_a_part_that_is_whole_or_too_long(server, known):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(known.body)
    downloads.get("toy", known.root)
    assert is_whole(known.root)
    shutil.rmtree(known.root / "Toy")
    (known.root / "toy.tar.part").write_bytes(known.body + b"more")
    downloads.get("toy", known.root)
    assert is_whole(known.root)


def test_a_part_of_something_else_is_thrown_away(server, known):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(b"x" * 5000)
    downloads.get("toy", known.root)
    assert is_whole(known.root)
    first = "/first/toy.tar?download=1"
    assert server.asked == [(first, "bytes=5000-"), (first, None)]


def test_a_server_without_ranges_sends_it_all_again(server, known):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(known.body[:5000])
    server.mood = "no ranges"
    downloads.get("toy", known.root)
    assert is_whole(known.root)


def test_a_server_that_answers_with_another_range_is_asked_for_all(server, known):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(known.body[:5000])
    server.mood = "wrong range"
    downloads.get("toy", known.root)
    assert is_whole(known.root)
    assert [asked for _, asked in server.asked] == ["bytes=5000-", None]


@pytest.mark.parametrize(
    ("name", "first", "good"),
    [
        ("a.tar.gz", b"\x1f\x8b\x08", True),
        ("a.tar.gz", b"PK\x03\x04", False),
        ("a.txt", b"n01440764/ILSVRC2012_val_00000293.JPEG\n", True),
        ("a.txt", b"\n\n<HTML>", False),
        ("a.txt", b'{"status": 403}', False),
    ],
)
def test_files_are_known_by_their_first_bytes(name, first, good):
    if good:
        transfer.check_start(name, first, {})
    else:
        with pytest.raises(transfer.NotTheFileError, match="the server sent"):
            transfer.check_start(name, first, {})


def test_the_next_address_and_mirrors_help_out(server, known):
    del server.files["/first/toy.tar"]
    downloads.get("toy", known.root)
    assert [path for path, _ in server.asked] == ["/first/toy.tar?download=1", "/second/toy.tar"]
    shutil.rmtree(known.root / "Toy")
    server.files = {"/near/toy.tar": known.body}
    downloads.get("toy", known.root, mirrors=[f"{server.url}/near/"])
    assert is_whole(known.root)


def test_a_mirror_without_a_scheme_is_refused_at_once(server, known):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(known.body[:5000])
    for mirror in ("example.org/x", "ftp://example.org", "file:///tmp"):
        with pytest.raises(ValueError, match="A mirror starts with http:// or https://, unlike"):
            downloads.get("toy", known.root, mirrors=[mirror])
    assert server.asked == []


@pytest.mark.parametrize("mirror", ["http://[::1", "http://host:port", "http://a b/x"])
def test_a_mirror_that_is_no_address_is_passed_over_with_its_part(server, known, mirror):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(known.body[:5000])
    downloads.get("toy", known.root, mirrors=[mirror])
    assert is_whole(known.root)
    assert server.asked == [("/first/toy.tar?download=1", "bytes=5000-")]


def test_what_is_no_web_server_is_a_failed_address(server, known, capsys):
    server.mood = "no web server"
    assert fails(capsys, known).count("220 mail.example ready") == 2  # both addresses


def test_a_download_outlives_a_check_that_is_stopped(server, known, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pooch.core, "hash_matches", stop)
        with pytest.raises(KeyboardInterrupt):
            downloads.get("toy", known.root)
    part = known.root / "toy.tar.part"
    assert part.read_bytes() == known.body
    (known.root / "tmpkilled").hardlink_to(part)  # what a process leaves that is killed then
    downloads.get("toy", known.root)
    assert is_whole(known.root)
    assert [asked for _, asked in server.asked] == [None, f"bytes={len(known.body)}-"]


def test_a_file_system_without_links(server, known, monkeypatch):
    def refuse(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(transfer.os, "link", refuse)
    downloads.get("toy", known.root)
    assert is_whole(known.root)


def fails(capsys, known):
    assert main(["data", "get", "toy", "--root", str(known.root)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("holdfast: ") and err.count("\n") == 1
    assert not (known.root / "Toy").exists() and not (known.root / "toy.tar").exists()
    return err


def test_a_page_never_passes_for_data(server, known, capsys):
    server.mood = "page"
    error = fails(capsys, known)
    assert "the server sent a page (text/html), not toy.tar" in error
    server.mood = "gone"
    assert "404 Not Found" in fails(capsys, known)


def test_a_page_leaves_what_was_downloaded(server, known, capsys):
    known.root.mkdir()
    (known.root / "toy.tar.part").write_bytes(known.body[:9000])
    server.mood = "page"
    fails(capsys, known)
    assert (known.root / "toy.tar.part").read_bytes() == known.body[:9000]


def test_another_file_of_the_same_name_is_refused(server, known, capsys):
    other = archive_of({"Toy/fog.npy": b"another"})
    server.files = {"/first/toy.tar": other, "/second/toy.tar": b"\x7fELF" + bytes(9000)}
    error = fails(capsys, known)
    assert known.remote.md5 in error  # of the first
    assert "does not start like toy.tar" in error  # of the second


def test_offline_says_which_file_to_put_where(server, known, capsys):
    server.shutdown()
    server.server_close()
    error = fails(capsys, known)
    assert f"put the file, with md5 {known.remote.md5}, at {known.root / 'toy.tar'}" in error
    assert f"holdfast data get toy --root {known.root}" in error
    (known.root / "toy.tar").write_bytes(known.body)
    assert main(["data", "get", "toy", "--root", str(known.root)]) == 0
    assert is_whole(known.root)


def test_room_is_checked_before_anything_is_written(server, known, capsys, monkeypatch):
    usage = SimpleNamespace(free=len(known.body))  # enough for the archive alone
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda folder: usage)
    error = fails(capsys, known)
    assert "GB free, but" in error and "make room" in error
    assert list(known.root.iterdir()) == []


def test_an_archive_cannot_write_elsewhere(server, known, monkeypatch, tmp_path):
    body = archive_of({"Toy/fog.npy": b"fog", "../../outside": b"!"})
    changed = Remote("toy.tar", hashlib.md5(body).hexdigest(), 1, known.remote.addresses, ("Toy",))
    monkeypatch.setitem(CATALOGUE, "toy", Entry("A toy", (changed,)))
    server.files["/first/toy.tar"] = body
    with pytest.raises(ValueError, match=r"toy\.tar cannot be unpacked.*outside"):
        downloads.get("toy", known.root)
    assert not (tmp_path / "outside").exists() and not (tmp_path.parent / "outside").exists()
    assert not (known.root / "Toy").exists()


def test_an_archive_with_other_contents_is_named(server, known, monkeypatch):
    body = archive_of({"Other/fog.npy": b"fog"})
    changed = Remote("toy.tar", hashlib.md5(body).hexdigest(), 1, known.remote.addresses, ("Toy",))
    monkeypatch.setitem(CATALOGUE, "toy", Entry("A toy", (changed,)))
    server.files["/first/toy.tar"] = body
    with pytest.raises(ValueError, match=r"toy\.tar holds no Toy; it holds Other"):
        downloads.get("toy", known.root)


def test_several_archives_make_one_set(server, tmp_path, monkeypatch):
    """As ImageNet-C: folders of corruptions in one folder, one of them inside another."""
    remotes = []
    for name, inside in (("noise", "gaussian_noise/5/x"), ("blur", "blur/zoom_blur/5/x")):
        body = server.files[f"/{name}.tar"] = archive_of({inside: name.encode()})
        made = "gaussian_noise" if name == "noise" else "zoom_blur"
        sum_ = hashlib.md5(body).hexdigest()
        address = (f"{server.url}/{name}.tar",)
        remotes.append(Remote(f"{name}.tar", sum_, 1, address, (f"All/{made}",)))
    monkeypatch.setitem(CATALOGUE, "toy", Entry("A toy", tuple(remotes)))
    (tmp_path / "All/gaussian_noise").mkdir(parents=True)  # got before
    downloads.get("toy", tmp_path)
    assert (tmp_path / "All/zoom_blur/5/x").read_bytes() == b"blur"
    assert [path for path, _ in server.asked] == ["/blur.tar"]
