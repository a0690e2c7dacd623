"""`vmq plugin`, as a program, against a running broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.cli.program import here, run
from vmq.plugins.loading import load


def test_plugins_are_listed_disabled_enabled_and_reloaded(
    tmp_path: Path, fresh_broker: BrokerFactory
) -> None:
    file = tmp_path / "mine.py"
    good = "from vmq_hooks import Plugin, hook\nclass Mine(Plugin):\n    @hook\n    def on_publish(self): ...\n"
    file.write_text(good)
    broker = fresh_broker(env={"VMQ_PLUGINS__MINE__PATH": str(file)})

    def vmq(*words: str) -> tuple[int, str, str]:
        done = here("plugin", *words, "--data-dir", str(broker.data_dir))
        return done.code, done.out.decode(), done.err

    code, out, _ = vmq("list", "--json")
    (row,) = json.loads(out)
    assert (code, row["name"], row["status"], row["hooks"]) == (0, "mine", "running", "on_publish")
    assert vmq("disable", "mine")[0] == 0
    assert json.loads(vmq("list", "--json")[1])[0]["status"] == "disabled"
    code, _, err = vmq("disable", "mine")
    assert code == 1
    assert "does not run" in err
    assert vmq("enable", "mine")[0] == 0
    file.write_text("1 / 0")
    code, _, err = vmq("reload", "mine")
    assert code == 1
    assert "ZeroDivisionError" in err
    assert json.loads(vmq("list", "--json")[1])[0]["status"] == "running"
    file.write_text(good.replace("on_publish", "on_register"))
    assert json.loads(vmq("reload", "mine", "--json")[1])["hooks"] == "on_register"


@pytest.mark.timeout(300)
def test_a_new_project_passes_its_own_test(tmp_path: Path) -> None:
    folder = tmp_path / "vmq-rooms"
    done = run("plugin", "new", "rooms", "--folder", str(folder))
    assert done.code == 0
    assert str(folder / "vmq_rooms" / "__init__.py") in done.out.decode()
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=folder,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "4 passed" in tested.stdout
    again = here("plugin", "new", "rooms", "--folder", str(folder))
    assert again.code == 1
    assert "is not empty" in again.err


def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    for name in ("Rooms", "my-plugin", "1st", ""):
        done = here("plugin", "new", name, "--folder", str(tmp_path / "x"))
        done.tells(1, "accepted: lower-case letters")
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_an_installed_package_is_refused(tmp_path: Path) -> None:
    for name in ("hooks", "acl"):
        done = here("plugin", "new", name, "--folder", str(tmp_path / "x"))
        done.tells(1, f"the package vmq_{name} is installed already")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["none", "config", "plugin", "class"])
def test_a_name_may_mean_something_in_python_or_here(tmp_path: Path, name: str) -> None:
    assert here("plugin", "new", name, "--folder", str(tmp_path)).code == 0
    kind = load(name, tmp_path / f"vmq_{name}")
    assert kind.__name__ == f"{name.capitalize()}Plugin"
    assert kind.Config is not None
    assert {"prefix"} == set(kind.Config.__struct_fields__)
