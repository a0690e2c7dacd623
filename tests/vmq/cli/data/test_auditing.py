"""What is changed while the broker is stopped stands in the audit log, too."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from vmq.cli.main import main
from vmq.runtime.audit import this_user
from vmq.store import tools as store_tools
from vmq.store.store import StoreError
from vmq.store.tools import StoreReport


@pytest.fixture
def audit_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "audit.log"
    monkeypatch.setenv("VMQ_LOG__AUDIT_FILE", str(path))
    monkeypatch.setenv("VMQ_BROKER__DATA_DIR", str(tmp_path))
    return path


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def repaired(found: StoreReport | StoreError) -> int:
    """What `vmq store repair` exits with, if that is what comes of it."""
    with patch.object(store_tools, "repair", autospec=True, side_effect=[found]):
        return main(["store", "repair"])


def test_a_repair_of_the_store_tells_who_did_it_and_what_came_of_it(audit_file: Path) -> None:
    damaged = StoreReport()
    damaged.problems.append("a record is lost")
    assert repaired(StoreReport()) == 0
    assert repaired(damaged) == 1
    assert repaired(StoreError("a broker uses it")) == 1
    told = events(audit_file)
    found = [each["result"] for each in told]
    assert found == ["ok", "problems remain", "failed: a broker uses it"]
    for each in told:
        assert (each["name"], each["by"]) == ("repair_store", this_user())
        seen = (each["peer"], each["parameters"])
        assert seen == ("offline", {"data_dir": str(audit_file.parent)})
    assert audit_file.stat().st_mode & 0o777 == 0o600


def test_a_repair_of_streams_tells_what_it_mended(
    audit_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (audit_file.parent / "streams").mkdir()
    assert main(["stream", "repair"]) == 0
    (told,) = events(audit_file)
    assert (told["name"], told["result"]) == ("repair_streams", "nothing to mend")
    assert main(["stream", "repair", "absent"]) == 1
    assert "absent" in capsys.readouterr().err
    assert events(audit_file)[1]["result"].startswith("failed: ")


def test_what_cannot_be_told_is_not_done(
    audit_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VMQ_LOG__AUDIT_FILE", str(audit_file / "no" / "folder"))
    monkeypatch.setattr(store_tools, "repair", None)
    assert main(["store", "repair"]) == 1
    assert "log.audit_file: cannot write" in capsys.readouterr().err


def test_without_a_file_of_its_own_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VMQ_BROKER__DATA_DIR", str(tmp_path))
    assert repaired(StoreReport()) == 0
    assert "operation" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
