"""What is told of plugins without starting one is what the start would say."""

from pathlib import Path

import pytest

from tests.vmq.plugins.support import serving
from vmq.broker import StartError
from vmq.config.load import load
from vmq.plugins.checking import Checked

GOOD = """
from typing import Annotated
import msgspec
from vmq_hooks import Plugin, hook

class Config(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=9)]
    name: str = ""

class Good(Plugin):
    Config = Config
    def start(self, broker, config):
        raise AssertionError("nobody starts it")
    @hook
    def auth_on_register(self, username):
        return True
"""


def checked(folder: Path, text: str, environ: dict[str, str] | None = None) -> Checked:
    path = folder / "vmq.toml"
    path.write_text(text)
    (folder / "good.py").write_text(GOOD)
    (folder / "odd.py").write_text(GOOD.replace("(self, username)", "(self, user)"))
    (folder / "broken.py").write_text("import nothing_of_this_name")
    (folder / "lame.py").write_text(GOOD + "    def check(self, broker, config):\n        1 / 0\n")
    (folder / "shy.py").write_text(GOOD + "    def serves(self, hook):\n        return False\n")
    return Checked(load(path, environ).config)


WRONG = [
    ('path = "good.py"', "vmq.toml: plugins.p.limit: missing; accepted: a whole number, 1 to 9"),
    (
        'path = "good.py"\nlimit = 0',
        "vmq.toml: plugins.p.limit = 0: accepted: a whole number, 1 to 9",
    ),
    (
        'path = "good.py"\nlimit = 1\nnmae = "x"',
        'plugins.p.nmae = "x": unknown option; did you mean',
    ),
    ('path = "gone.py"', 'vmq.toml: plugins.p.path = "gone.py": there is no file'),
    ('path = "vmq.toml"', 'vmq.toml: plugins.p.path = "vmq.toml": '),
    ('path = "broken.py"', "plugin p: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    ('path = "lame.py"\nlimit = 1', "/lame.py:18 in check)"),
    ('path = "odd.py"\nlimit = 1', "hook auth_on_register has no 'user'"),
    ("", "vmq.toml: plugins.p: not installed"),
]


@pytest.mark.parametrize(
    "where", ["if True:", "def __init__(self):", "def check(self, broker, config):"]
)
def test_ctrl_c_while_a_plugin_is_looked_at_is_no_mistake_of_it(tmp_path: Path, where: str) -> None:
    slow = f"from vmq_hooks import Plugin\nclass Slow(Plugin):\n    {where}\n        raise KeyboardInterrupt\n"
    (tmp_path / "slow.py").write_text(slow)
    with pytest.raises(KeyboardInterrupt):
        checked(tmp_path, '[plugins.p]\npath = "slow.py"')


@pytest.mark.parametrize(("section", "problem"), WRONG)
async def test_it_finds_what_would_keep_the_broker_from_starting(
    tmp_path: Path, section: str, problem: str
) -> None:
    found = checked(tmp_path, f"[plugins.p]\n{section}\n")
    assert any(problem in line for line in found.problems), found.problems
    sections = load(tmp_path / "vmq.toml").config.plugins
    with pytest.raises(StartError) as refused:
        async with serving(tmp_path / "data", sections=sections):
            pass
    assert str(refused.value).splitlines() == found.problems


def test_the_source_of_an_option_is_named(tmp_path: Path) -> None:
    text = '[plugins.p]\npath = "good.py"\nlimit = 1\nname = 3\n'
    found = checked(tmp_path, text, {"VMQ_PLUGINS__P__LIMIT": "10"})
    assert found.problems == [
        "environment VMQ_PLUGINS__P__LIMIT: plugins.p.limit = 10: accepted: a whole number, 1 to 9",
        f"{tmp_path}/vmq.toml: plugins.p.name = 3: accepted: a text",
    ]


def test_a_disabled_plugin_is_nobodys_concern(tmp_path: Path) -> None:
    assert checked(tmp_path, "[plugins.p]\nenabled = false\n").problems == []


def test_who_decides(tmp_path: Path) -> None:
    text = "".join(
        f'[plugins.{name}]\npath = "{file}.py"\nlimit = 1\n'
        for name, file in (("a", "good"), ("b", "shy"), ("c", "good"))
    )
    found = checked(tmp_path, text)
    assert found.problems == []
    assert found.who_decides("auth_on_register") == (["a", "c"], ["b"])
    assert found.who_decides("auth_on_register", ["b", "c"]) == (["c"], ["b"])
    assert found.who_decides("auth_on_publish") == ([], [])
