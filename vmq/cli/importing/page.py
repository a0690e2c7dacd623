"""The tables of docs/migrating.md, out of the rules that an import goes by.

`python -m vmq.cli.importing.page FILE` writes them into a page, between the comments that name each broker.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vmq.cli.importing import emqx, mosquitto_rules, vernemq
from vmq.cli.importing.rules import Rule

TABLES: Final = {"mosquitto": mosquitto_rules.TABLE, "vernemq": vernemq.TABLE, "emqx": emqx.TABLE}


def table(rules: Mapping[str, Rule]) -> str:
    """The rules as a table of Markdown."""
    lines = ["| setting | becomes | |", "| --- | --- | --- |"]
    for key, rule in sorted(rules.items()):
        becomes = ", ".join(f"`{each}`" for each in rule.to.split()) or "-"
        lines.append(f"| `{key}` | {becomes} | {rule.note} |")
    return "\n".join(lines) + "\n"


def with_tables(text: str) -> str:
    """The page with the tables as they are now."""
    for name, rules in TABLES.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        before, *after = re.split(pattern, text, flags=re.DOTALL)
        if len(after) != 1:
            raise ValueError(f"the page has no place for the table of {name}")
        text = f"{before}{begin}\n{table(rules)}\n{end}{after[0]}"
    return text


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
