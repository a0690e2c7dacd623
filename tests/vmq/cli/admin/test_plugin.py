"""`vmq plugin`, as a program, against a running broker."""

import json
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.cli.program import here
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

    assert '""' not in vmq("list")[1]
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


def test_a_new_project_is_put_over_no_other(tmp_path: Path) -> None:
    """What is in it: tests/vmq/testing/test_plugin.py."""
    folder = tmp_path / "vmq-rooms"
    done = here("plugin", "new", "rooms", "--folder", str(folder))
    assert done.code == 0
    assert str(folder / "vmq_rooms" / "__init__.py") in done.out.decode()
    here("plugin", "new", "rooms", "--folder", str(folder)).tells(1, "is not empty")


def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    for name in ("Rooms", "my-plugin", "1st", ""):
        done = here("plugin", "new", name, "--folder", str(tmp_path / "x"))
        done.tells(1, "accepted: lower-case letters")
    here("plugin", "new", "vmq_rooms").tells(1, "accepted: 'rooms'")
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
