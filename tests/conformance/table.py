"""Writes docs/conformance.md: each normative statement, its rule, and the tests that show it.

    python -m tests.conformance.table            writes the page
    python -m tests.conformance.table --check    exit code 1 if it is out of date or has a gap

The statements are in statements.toml. A test belongs to a statement by its name:
`test_mqtt_3_1_2_8_...` shows MQTT-3.1.2-8; what it shows besides is in `shown_by` of that statement. A statement that
no test shows needs a reason there (`untested`). The tables of states are those of `vmq.core.states`.
"""

import ast
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent.parent / "docs" / "conformance.md"
NUMBERED = re.compile(r"test_mqtt_(\d+)_(\d+)_(\d+)_(\d+)_\w+")

HEADER = """\
# Conformance to MQTT 3.1.1

Every numbered normative statement of the OASIS Standard "MQTT Version 3.1.1", in our own words,
and the tests in `tests/conformance` that show it on the wire. Below them, what a packet does in
which state, and what the standard says without a number, what it leaves open, and what we chose.

This page is generated: `python -m tests.conformance.table`.
"""


@dataclass(frozen=True, slots=True)
class ConformanceTest:
    """A test function: its file, its name and the first sentences of its docstring."""

    file: str
    name: str
    summary: str

    @property
    def link(self) -> str:
        """The name as a link to its file, relative to the page."""
        return f"[`{self.name}`](../tests/conformance/{self.file})"


@dataclass(slots=True)
class Statement:
    """A normative statement and the tests that show it."""

    number: str
    binds: str
    rule: str
    untested: str = ""
    #: What we chose beside it.
    choice: str = ""
    #: Tests that are named after another statement, or none, and show this one as well.
    shown_by: list[str] = field(default_factory=list)
    tests: list[ConformanceTest] = field(default_factory=list)

    @property
    def told(self) -> str:
        """The rule, and what we chose beside it."""
        return f"{self.rule} Our choice: {self.choice}" if self.choice else self.rule

    @property
    def shown(self) -> str:
        """What the page has in the column of the tests."""
        if self.tests:
            return "<br>".join(test.link for test in self.tests)
        return f"none: {self.untested}"


def read_statements() -> dict[str, Statement]:
    """All statements by their number, without tests."""
    with (FOLDER / "statements.toml").open("rb") as file:
        data = tomllib.load(file)
    return {number: Statement(number, **fields) for number, fields in data.items()}


def find_tests(folder: Path = FOLDER) -> list[ConformanceTest]:
    """The test functions of the folder, in the order of files and lines."""
    found: list[ConformanceTest] = []
    for path in sorted(folder.glob("test_*.py"), key=_section):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                found.append(ConformanceTest(path.name, node.name, " ".join(text.split())))
    return found


def _section(path: Path) -> tuple[list[int], str]:
    """Sorts test_3_2 before test_3_10, and names without a number behind them."""
    numbers = [int(part) for part in path.stem.split("_") if part.isdigit()]
    return numbers or [99], path.stem


def statement_of(test: ConformanceTest) -> str | None:
    """The number of the statement that a test is named after, if it is."""
    match = NUMBERED.fullmatch(test.name)
    return f"MQTT-{match[1]}.{match[2]}.{match[3]}-{match[4]}" if match else None


def assign(statements: dict[str, Statement], tests: list[ConformanceTest]) -> list[ConformanceTest]:
    """Give each test to its statements; returns the tests that are named after none.

    Raises KeyError for a test or a statement that does not exist.
    """
    others: list[ConformanceTest] = []
    named = {test.name: test for test in tests}
    for test in tests:
        number = statement_of(test)
        if number is None:
            others.append(test)
        else:
            statements[number].tests.append(test)
    for statement in statements.values():
        statement.tests += [named[name] for name in statement.shown_by]
    return others


def gaps(statements: dict[str, Statement], tests: list[ConformanceTest]) -> list[str]:
    """What is missing, or too much: sentences for a person to read."""
    found = [f"{test.file}: {test.name} has no docstring" for test in tests if not test.summary]
    for statement in statements.values():
        if not statement.tests and not statement.untested:
            found.append(f"{statement.number} has neither a test nor a reason")
        if statement.tests and statement.untested:
            found.append(f"{statement.number} has a test and a reason for having none")
    return found


def render(statements: dict[str, Statement], others: list[ConformanceTest]) -> str:
    shown = sum(1 for statement in statements.values() if statement.tests)
    lines = [
        HEADER,
        f"{len(statements)} statements: {shown} have tests, {len(statements) - shown} a reason.",
        "",
        "## The statements",
        "",
        "| statement | binds | rule | tests |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.number} | {row.binds} | {row.told} | {row.shown} |" for row in statements.values()
    ]
    lines += [
        "",
        "## Expected beyond the statements",
        "",
        "| test | what it shows |",
        "| --- | --- |",
    ]
    lines += [f"| {test.link} | {test.summary.replace('|', chr(92) + '|')} |" for test in others]
    return "\n".join([*lines, ""])


STATES_HEADER = """\
## The states of a connection

A packet that comes is looked at, kept until the connection is online, or passed over. Any state but the last five may
also be followed by one of these, and any by closed.

| state | packets are | what it means | goes on to |
| --- | --- | --- | --- |"""

PACKETS_HEADER = """\

## What a packet does

A number is the statement that the packet breaks: the connection ends, with the number in the log. MQTT 3.1 has no
reserved bits in the first byte, and theirs are passed over. In its bits, 0 and 1 tell which packet it is, - and + are
reserved and have to be 0 and 1, and a dot is either.

| packet | first byte | other reserved bits | awaiting CONNECT | online |
| --- | --- | --- | --- | --- |"""

ACKNOWLEDGEMENTS_HEADER = """\

## What an acknowledgement does

By the state of the message in flight to the client that has its identifier. Those that are unknown are counted.

| packet | unknown | awaiting PUBACK | awaiting PUBREC | awaiting PUBCOMP |
| --- | --- | --- | --- | --- |"""


def render_states() -> str:
    """The tables of states, as the broker goes by them."""
    # Where these tests are run against another broker, the page is not written.
    from vmq.core.states import ACKNOWLEDGEMENTS, PACKETS, STATES
    from vmq.mqtt.packets import PACKET_NAMES

    lines = [STATES_HEADER]
    for state in STATES:
        after = ", ".join(STATES[number].name for number in state.followers)
        lines.append(f"| {state.name} | {state.packets} | {state.meaning} | {after} |")
    lines.append(PACKETS_HEADER)
    lines += [
        f"| {row.packet} | {row.bits} | {row.flags} | {row.first} | {row.online} |"
        for row in PACKETS
    ]
    lines.append(ACKNOWLEDGEMENTS_HEADER)
    for row in ACKNOWLEDGEMENTS:
        cells = row.unknown, row.awaiting_puback, row.awaiting_pubrec, row.awaiting_pubcomp
        lines.append(f"| {PACKET_NAMES[row.packet]} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""])


def missing() -> list[str]:
    statements, tests = read_statements(), find_tests()
    assign(statements, tests)
    return gaps(statements, tests)


def build() -> str:
    statements, tests = read_statements(), find_tests()
    others = [test for test in assign(statements, tests) if test.file != "test_table.py"]
    page = render(statements, others)
    place = page.index("## Expected beyond the statements")
    return page[:place] + render_states() + page[place:]


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    page, found = build(), missing()
    for gap in found:
        print(gap, file=sys.stderr)
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text("utf-8") == page
        if not current:
            print(f"{PAGE} is out of date", file=sys.stderr)
        return 1 if found or not current else 0
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page, "utf-8")
    print(f"wrote {PAGE}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
