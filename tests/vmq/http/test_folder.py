import os
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.http.conftest import get
from vmq.http.folder import ServedFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "site"
    (found / "sub").mkdir(parents=True)
    (found / ".git").mkdir()
    (found / "index.html").write_text("home")
    (found / "sub" / "index.html").write_text("below")
    (found / "a b:c").mkdir()
    (found / "a b:c" / "index.html").write_text("spaced")
    (found / "sub" / "a b.js").write_text("1")
    (found / ".env").write_text("secret")
    (found / ".git" / "config").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "siteother").mkdir()
    (tmp_path / "siteother" / "file").write_text("secret")
    (found / "out").symlink_to(tmp_path / "secret")
    (found / "outside").symlink_to(tmp_path)
    (found / "hidden").symlink_to(found / ".env")
    (found / "within").symlink_to(found / "sub" / "a b.js")
    (found / "loop").symlink_to(found / "loop")
    return found


@pytest.mark.parametrize(
    ("asked", "file"),
    [
        ("", "index.html"),
        ("index.html", "index.html"),
        ("sub", "sub/index.html"),
        ("sub/", "sub/index.html"),
        ("sub/a b.js", "sub/a b.js"),
        ("within", "sub/a b.js"),
    ],
)
def test_files_of_the_folder_are_served(folder: Path, asked: str, file: str) -> None:
    assert ServedFolder(folder).find(asked) == folder / file


@pytest.mark.parametrize(
    "asked",
    [
        "nothing",
        "../secret",
        "sub/../../secret",
        "/etc/passwd",
        "//etc/passwd",
        "../siteother/file",
        ".env",
        ".git/config",
        "sub/../.env",
        "hidden",
        "out",
        "outside/secret",
        "loop",
        "a\0b",
        "x" * 5000,
        "..",
    ],
)
def test_nothing_else_is(folder: Path, asked: str) -> None:
    assert ServedFolder(folder).find(asked) is None


def test_a_pipe_is_no_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert ServedFolder(folder).find("pipe") is None


def test_its_origin_has_files_and_mqtt_and_no_api(
    folder: Path, tmp_path: Path, fresh_broker: BrokerFactory
) -> None:
    config = tmp_path / "vmq.toml"
    config.write_text(
        '[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'
        f'[listeners.site]\nurl = "http://127.0.0.1:0"\nserve = "{folder}"\n'
    )
    broker = fresh_broker((), args=("--config", str(config)))
    answer = get(broker.http, "/")
    assert (answer.status, answer.body) == (200, b"home")
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert "worker-src 'self' blob:;" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for path, location in {
        "/sub?a=1": "./sub/?a=1",
        "//sub": "./sub/",
        "/a%20b:c": "./a%20b:c/",
    }.items():
        answer = get(broker.http, path)
        assert (answer.status, answer.headers["Location"]) == (302, location)
    assert get(broker.http, "/a%20b:c/").body == b"spaced"
    assert get(broker.http, "/favicon.ico").status == 204
    assert get(broker.http, "/sub/favicon.ico").status == 404
    (folder / "favicon.ico").write_bytes(b"icon")
    assert get(broker.http, "/favicon.ico").body == b"icon"
    for path in (
        "/api/v1/sessions",
        "/metrics",
        "/health",
        "/page/app.js",
        "/%2e%2e/secret",
        "/.env",
    ):
        assert get(broker.http, path).status == 404, path
    assert get(broker.http, "/", {"Host": "evil.example"}).status == 421
    assert get(broker.http, "/mqtt").status == 426
