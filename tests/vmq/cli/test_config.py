"""`vmq config check` and `vmq config show`."""

import json
from pathlib import Path

import pytest

from vmq.cli.main import main


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMQ_QUEUE__DROP", "oldest")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vmq.toml"
    path.write_text('[log]\nlevel = "debug"\n[listeners.a]\nurl = "tcp://[::1]:1884"\n')
    return path


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines()}


def test_show_has_a_line_for_each_option_with_value_and_origin(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    assert main(["config", "show", "--config", str(file)]) == 0
    table = rows(capsys.readouterr().out)
    assert table["option"] == ["value", "from"]
    assert table["log.level"] == ['"debug"', str(file)]
    assert table["listeners.a.url"] == ['"tcp://[::1]:1884"', str(file)]
    assert table["listeners.a.allow_anonymous"] == ["(unset)", "default"]
    assert table["queue.drop"] == ['"oldest"', "environment", "VMQ_QUEUE__DROP"]
    assert table["queue.max_inflight_messages"] == ["20", "default"]
    assert "listeners.tcp.url" not in table


def test_show_as_json(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert main(["config", "show", "--json", "--config", str(file)]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["queue.drop"] == {"value": "oldest", "origin": "environment VMQ_QUEUE__DROP"}
    assert tree["session.upgrade_outgoing_qos"] == {"value": False, "origin": "default"}


def test_show_changed_has_what_differs_from_the_defaults_and_nothing_else(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    with file.open("a") as more:
        more.write(
            '[queue]\nqueue_type = "fifo"\n[plugins.vmq_systree]\n[streams.s]\nfilters = ["a"]\n'
        )
    assert main(["config", "show", "--changed", "--config", str(file)]) == 0
    assert rows(capsys.readouterr().out) == {
        "option": ["value", "from"],
        "queue.drop": ['"oldest"', "environment", "VMQ_QUEUE__DROP"],
        "log.level": ['"debug"', str(file)],
        "listeners.a.url": ['"tcp://[::1]:1884"', str(file)],
        "listeners.tcp": ["(unset)", str(file)],
        "listeners.ws": ["(unset)", str(file)],
        "listeners.http": ["(unset)", str(file)],
        "streams.s.filters": ['["a"]', str(file)],
        "plugins.vmq_systree.enabled": ["true", str(file)],
    }


def test_show_changed_says_that_nothing_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VMQ_QUEUE__DROP")
    assert main(["config", "show", "--changed"]) == 0
    assert capsys.readouterr().out == "nothing differs from the defaults\n"
    assert main(["config", "show", "--changed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {}


def test_check_says_ok_and_where_it_would_listen(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    assert main(["config", "check", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ok: 3 values set")
    assert "listener a: tcp://[::1]:1884 (anonymous clients: yes)" in out


@pytest.mark.parametrize("command", ["check", "show"])
def test_every_error_is_a_line_and_the_exit_code_is_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('[queue]\nmax_inflight_messages = "many"\nsize = 1\n')
    assert main(["config", command, "--config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 2
    for line, key in zip(lines, ("max_inflight_messages", "size"), strict=True):
        assert line.startswith(f"vmq: error: {path}: queue.{key} = ")


PLUGIN = """
from vmq_hooks import Plugin, hook

class Doors(Plugin):
    @hook
    def auth_on_register(self):
        return None
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Path:
    """A configuration with a plugin that knows clients."""
    (tmp_path / "doors.py").write_text(PLUGIN)
    perhaps = PLUGIN + "    def serves(self, hook):\n        return False\n"
    (tmp_path / "perhaps.py").write_text(perhaps)
    (tmp_path / "silent.py").write_text(
        "from vmq_hooks import Plugin\nclass P(Plugin):\n    pass\n"
    )
    path = tmp_path / "vmq.toml"
    path.write_text(
        "".join(
            f'[plugins.{name}]\npath = "{name}.py"\n' for name in ("doors", "perhaps", "silent")
        )
        + """
[listeners.all]
url = "tcp://127.0.0.1:1"
[listeners.open]
url = "tcp://127.0.0.1:2"
allow_anonymous = true
[listeners.none]
url = "tcp://127.0.0.1:3"
auth_plugins = []
[listeners.chosen]
url = "tcp://127.0.0.1:4"
auth_plugins = ["perhaps"]
[listeners.shut]
url = "tcp://127.0.0.1:5"
auth_plugins = ["silent"]
[listeners.closed]
url = "tcp://127.0.0.1:6"
allow_anonymous = false
auth_plugins = []
"""
    )
    return path


def test_check_tells_the_truth_about_anonymous_clients(
    capsys: pytest.CaptureFixture[str], guarded: Path
) -> None:
    assert main(["config", "check", "--config", str(guarded)]) == 0
    lines = [each for each in capsys.readouterr().out.splitlines() if "listener" in each]
    said = {each.split()[1]: each.partition("anonymous clients: ")[2] for each in lines}
    assert said == {
        "all:": "no, but whom it lets in: doors, perhaps)",
        "open:": "yes, and no plugin is asked)",
        "none:": "yes)",
        "chosen:": "yes, unless perhaps serves auth_on_register)",
        "shut:": "no, and nobody else: none of its auth_plugins serves auth_on_register)",
        "closed:": "no)",
    }


def test_check_refuses_wrong_options_of_plugins_and_counts_right_ones(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "vmq.toml"
    path.write_text('[plugins.vmq_acl]\nfile = "acl"\ngeneral = "some"\nfiel = "x"\n')
    assert main(["config", "check", "--config", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f'vmq: error: {path}: plugins.vmq_acl.general = "some": accepted: "anonymous", "everybody"',
        f"vmq: error: {path}: plugins.vmq_acl.fiel = \"x\": unknown option; did you mean 'file'?",
    ]
    (tmp_path / "acl").write_text("topic read news/#\n")
    path.write_text('[plugins.vmq_acl]\nfile = "acl"\ngeneral = "everybody"\n')
    assert main(["config", "check", "--config", str(path)]) == 0
    assert capsys.readouterr().out.startswith("ok: 3 values set")  # queue.drop as well


def test_show_has_the_options_of_plugins_and_none_of_their_secrets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMQ_PLUGINS__MINE__API_TOKEN", "s3cret")
    path = tmp_path / "vmq.toml"
    path.write_text('[plugins.mine]\nfile = "acl"\n')
    assert main(["config", "show", "--config", str(path)]) == 0
    table = rows(capsys.readouterr().out)
    assert table["plugins.mine.file"] == ['"acl"', str(path)]
    found = table["plugins.mine.api_token"]
    assert found == ['"(hidden)"', "environment", "VMQ_PLUGINS__MINE__API_TOKEN"]
    assert not [key for key in table if key.endswith(("own_options", "own_sources", "stated_in"))]
