"""Plugins from files, folders and packages; what is no plugin is named."""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from vmq_hooks import Plugin, hook

from vmq.plugins.guard import PluginGuard
from vmq.plugins.implementations import steps_of
from vmq.plugins.loading import LoadError, forget, load

ONE = """
from vmq_hooks import Plugin, hook
VALUE = {value}
class Mine(Plugin):
    value = VALUE
    @hook
    def on_publish(self, message): ...
"""


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(text), encoding="utf-8")
    return file


def test_a_file_is_loaded_anew_each_time(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", ONE.format(value=1))
    first = load("mine", file)
    write(file, ONE.format(value=2))
    second = load("mine", file)
    assert (first.value, second.value) == (1, 2)  # type: ignore[attr-defined]
    assert first is not second
    assert first.__module__ in sys.modules
    forget("mine", first)
    assert first.__module__ not in sys.modules


def test_a_folder_is_a_package(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "__init__.py", "from .inner import Mine\n")
    write(tmp_path / "mine" / "inner.py", ONE.format(value=3))
    assert load("mine", tmp_path / "mine").value == 3  # type: ignore[attr-defined]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith(("vmq_mine", "offered"))]:
        del sys.modules[name]


def offers(site: Path, *entries: str) -> None:
    info = site / "offered-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    write(info / "RECORD", "editable.pth,,\n")
    write(info / "entry_points.txt", "\n".join(("[vmq.plugins]", *entries)))


def test_an_entry_point_is_found_by_its_name(site: Path) -> None:
    write(site / "offered.py", ONE.format(value=4))
    offers(site, "offer = offered:Mine")
    assert load("offer", None).value == 4  # type: ignore[attr-defined]
    write(site / "offered.py", ONE.format(value=5))
    assert load("offer", None).value == 5  # type: ignore[attr-defined]


def test_an_editable_installation_that_came_since_is_found(site: Path) -> None:
    write(site / "project" / "offered.py", ONE.format(value=7))
    write(site / "editable.pth", f"{site / 'project'}\n")
    offers(site, "offer = offered:Mine")
    assert load("offer", None).value == 7  # type: ignore[attr-defined]


def test_plugins_of_one_package_share_its_modules(site: Path) -> None:
    write(site / "offered" / "__init__.py", "")
    write(site / "offered" / "common.py", "VALUE = 1\n")
    for each in ("one", "two"):
        write(
            site / "offered" / f"{each}.py",
            ONE.format(value="common").replace("VALUE =", "from . import common\nVALUE ="),
        )
    offers(site, "one = offered.one", "two = offered.two")

    def common(name: str) -> Any:
        found: Any = load(name, None)
        return found.value

    first = common("one")
    assert common("two") is first
    assert sys.modules["offered.common"] is first
    second = common("one")
    assert second is not first, "a reload executes it anew, and the other one's as well"
    assert common("two") is second
    kind = sys.modules["offered.two"].Mine
    forget("two", kind)
    assert common("two") is second, "it was stopped and started"
    forget("two", kind)
    write(site / "offered" / "common.py", "VALUE = 22\n")
    third = common("two")
    assert third.VALUE == 22
    assert common("one") is third


def test_a_package_of_the_name_needs_no_entry_point(site: Path) -> None:
    write(site / "vmq_mine" / "__init__.py", "from vmq_mine.inner import Mine\n")
    write(site / "vmq_mine" / "inner.py", ONE.format(value=6))
    assert load("mine", None).value == 6  # type: ignore[attr-defined]
    before = sys.modules["vmq_mine.inner"]
    write(site / "vmq_mine" / "inner.py", "broken(")
    with pytest.raises(LoadError, match="SyntaxError"):
        load("mine", None)
    assert sys.modules["vmq_mine.inner"] is before, "the old code is whole"


@pytest.mark.parametrize(
    ("text", "why"),
    (
        ("", "has to define one subclass"),
        ("import nowhere_at_all", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("plugin = 3", "is no subclass"),
        (
            "from vmq_hooks import Plugin\nclass A(Plugin): ...\nclass B(Plugin): ...",
            "it defines: A, B",
        ),
    ),
)
def test_what_is_no_plugin_is_named(tmp_path: Path, text: str, why: str) -> None:
    file = write(tmp_path / "mine.py", text)
    with pytest.raises(LoadError, match=why):
        load("unmade", file)
    assert not [each for each in sys.modules if each.startswith("vmq_plugin_unmade")]


def test_an_error_names_its_line_though_the_path_is_a_relative_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "mine.py", "\nimport nowhere_at_all")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LoadError, match=f"{file}:2"):
        load("mine", Path("mine.py"))


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="there is no file"):
        load("mine", tmp_path / "mine.py")
    with pytest.raises(LoadError, match=r"not installed.*plugins\.mine\.path"):
        load("mine", None)


@pytest.mark.parametrize(
    ("body", "why"),
    (
        (
            "@hook\n    def sunrise(self): ...",
            "^plugin mine: there is no hook 'sunrise'; accepted: auth_on_register, ",
        ),
        ("@hook\n    def on_publsh(self): ...", "'on_publsh', did you mean 'on_publish'"),
        (
            "@hook\n    def on_publish(self, msg): ...",
            "^plugin mine: hook on_publish has no 'msg'; accepted: username, subscriber_id, message$",
        ),
        ("@hook\n    def on_publish(self, mesage=None): ...", "has no 'mesage'; accepted"),
        ("@hook\n    def on_publish(self, **message): ...", r"has no '\*\*message'; accepted"),
        ("@hook\n    def on_publish(self, *, message): ...", "'message' by keyword alone"),
        ("@hook(tryfirst=True)\n    def on_publish(self): ...", "plugins.mine.priority"),
        ("@hook\n    async def on_deliver(self): ...", "cannot be async"),
        ("@hook\n    def on_publish(self):\n        yield", "generator"),
        ("def on_publish(self): ...", "on_publish has the name of a hook; accepted: @hook above"),
    ),
)
def test_hooks_that_there_are_not_are_refused(tmp_path: Path, body: str, why: str) -> None:
    text = f"from vmq_hooks import Plugin, hook\nclass Mine(Plugin):\n    {body}\n"
    file = tmp_path / "mine.py"
    file.write_text(text, encoding="utf-8")
    plugin = load("mine", file)()
    with pytest.raises(LoadError, match=why):
        steps_of("mine", plugin, PluginGuard("mine"))


def test_an_argument_with_a_default_is_given_as_well() -> None:
    class Mine(Plugin):
        @hook
        def auth_on_publish(self, message: str, username: str | None = None) -> Any:
            return message, username

    step = steps_of("mine", Mine(), PluginGuard("mine"))["auth_on_publish"]
    assert step.call("anna", "c", "m") == ("m", "anna")
