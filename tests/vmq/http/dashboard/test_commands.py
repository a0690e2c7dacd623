"""The commands that the page tells operators: they are there, and what strangers are called does no harm in them."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer.main
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import require_tool
from vmq.cli.main import COMMANDS, app_of
from vmq.http.dashboard.files import FOLDER

VIEWS = sorted((FOLDER / "views").glob("*.js"))
#: Backquotes, quotes or the beginning of a command in a text.
COMMAND = re.compile(r"[`\"(]vmq ((?:[a-z-]+ ?)+)")


def test_each_command_is_there() -> None:
    found = {each.strip() for path in VIEWS for each in COMMAND.findall(path.read_text())}
    assert len(found) > 10
    program = typer.main.get_command(app_of(COMMANDS))
    for line in sorted(found):
        command = program
        for word in line.split():
            inner = getattr(command, "commands", None)
            if inner is None:
                break  # arguments
            assert word in inner, f"vmq {line}"
            command = inner[word]


@pytest.fixture(scope="module")
def quoted(tmp_path_factory: pytest.TempPathFactory) -> "Quote":
    node, bash = require_tool("node"), require_tool("bash")
    text = (FOLDER / "views" / "wrong.js").read_text()
    source = text[text.index("export function word") : text.index("/** The command for a client")]
    script = tmp_path_factory.mktemp("word") / "word.mjs"
    script.write_text(
        source + "\nconsole.log(JSON.stringify(JSON.parse(process.argv[2]).map(word)));\n"
    )
    return Quote(node, bash, script)


class Quote:
    """Words as the page writes them, and as a shell reads those."""

    def __init__(self, node: str, bash: str, script: Path) -> None:
        self.node = node
        self.bash = bash
        self.script = script

    def written(self, names: list[str]) -> list[str]:
        done = subprocess.run(
            [self.node, str(self.script), json.dumps(names)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return list(json.loads(done.stdout))

    def read(self, words: list[str]) -> list[str]:
        command = "printf '%s\\0' " + " ".join(words)
        done = subprocess.run(
            [self.bash, "-c", command],
            capture_output=True,
            check=True,
            timeout=60,
            env={"LC_ALL": "C.UTF-8"},
        )
        return done.stdout.decode().split("\0")[:-1]


NAMES = st.lists(
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12),
    min_size=200,
    max_size=200,
)


@settings(max_examples=2)
@given(NAMES)
def test_a_shell_reads_the_name_and_nothing_else(quoted: Quote, names: list[str]) -> None:
    names += [
        "a b",
        "$(reboot)",
        "`x`",
        "it's",
        "-rf",
        "",
        "\x1b[2J",
        "a\nb",
        "\u202e",
        "\\'",
        "é\x7f",
    ]
    written = quoted.written(names)
    assert quoted.read(written) == names
    assert not any(
        each != each.strip() or re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", each)
        for each in written
    )
    assert shlex.split(written[names.index("it's")]) == ["it's"]
