"""What the options of `vmq spark run` mean."""

from pathlib import Path

import pytest

from vmq.cli.spark_options import master_of, pairs, password_of, place_of, server_of
from vmq.cli.terminal.console import CliError, UsageError
from vmq.config import load as config_load


def test_pairs() -> None:
    assert pairs("-o", None) == {}
    assert pairs("-o", ["a=1", "b=c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}
    for wrong in ("a", "=1", ""):
        with pytest.raises(UsageError, match="expected NAME=VALUE"):
            pairs("-o", [wrong])
    with pytest.raises(UsageError, match="-o a is given twice"):
        pairs("-o", ["a=1", "a=2"])


@pytest.mark.parametrize(
    "text", ["local", "local[2]", "local[*]", "local[*,4]", "yarn", "spark://h:7077", "k8s://h:1"]
)
def test_masters(text: str) -> None:
    assert master_of(text) == text


@pytest.mark.parametrize("text", ["", "locale", "local[]", "local[0]", "spark://", "http://h", "x"])
def test_masters_that_spark_does_not_know(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected local\[CORES\]"):
        master_of(text)


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of(None, Path("a")) == str(tmp_path / "a")
    assert place_of("b", Path("a")) == str(tmp_path / "b")
    assert place_of("s3a://b/c", Path("a")) == "s3a://b/c"


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        (["tcp://127.0.0.1:1", "grpc://127.0.0.1:2"], "grpc://127.0.0.1:2"),
        (["grpc://127.0.0.1:0", "tcp://127.0.0.1:1", "grpc://127.0.0.1:3"], "grpc://127.0.0.1:3"),
        (["tcp://127.0.0.1:1", "grpc://0.0.0.0:4"], "grpc://127.0.0.1:4"),
    ],
)
def test_the_server_is_the_configurations(listen: list[str], expected: str) -> None:
    overrides = {"listeners": listen, "auth.allow_anonymous": True}
    config = config_load.load(overrides=overrides).config
    assert server_of(None, config) == expected
    assert server_of("grpc://other:5", config) == "grpc://other:5"


def test_without_a_listener_the_server_has_to_be_given() -> None:
    with pytest.raises(UsageError, match="--server grpc://HOST:PORT"):
        server_of(None, config_load.load().config)


def test_passwords(tmp_path: Path) -> None:
    assert password_of(None) is None
    path = tmp_path / "secret"
    path.write_bytes("pässword\r\nmore".encode())
    assert password_of(path) == "pässword"
    path.write_bytes(b"\xef\xbb\xbfsecret\n")  # a byte order mark is no part of it
    assert password_of(path) == "secret"
    path.write_bytes(b"\xff\n")
    with pytest.raises(CliError, match="no UTF-8"):
        password_of(path)
    with pytest.raises(CliError, match="No such file"):
        password_of(tmp_path / "none")
