"""A missing tool: a skip by hand, a failure where `make test` has installed everything."""

from pathlib import Path

import pytest

from tests.support.tools import LEFT_ALONE, require_tool

NOWHERE = "a-program-that-nobody-has"


def test_a_tool_is_found_where_servers_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "tool"
    program.touch(0o755)
    monkeypatch.setattr("tests.support.tools._PATH", str(tmp_path))
    assert require_tool(NOWHERE, "tool") == str(program)


def test_by_hand_a_missing_tool_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{NOWHERE} is not installed; 'make test'"):
        require_tool(NOWHERE)


def test_in_ci_a_missing_tool_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match=f"{NOWHERE} is not installed"):
        require_tool(NOWHERE)


def test_what_is_not_ours_to_install_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr("tests.support.tools._PATH", "")
    (name,) = LEFT_ALONE
    with pytest.raises(pytest.skip.Exception, match=LEFT_ALONE[name]):
        require_tool(name)
