"""Which tests are run interpreted as well."""

import ast
from pathlib import Path

from tests.support.interpreted import RULES

ROOT = Path(__file__).parents[2]


def test_what_switches_rules_off_is_there() -> None:
    for file, _, name in (each.partition("::") for each in RULES):
        body = ast.parse((ROOT / file).read_text()).body
        assert not name or name in [getattr(each, "name", "") for each in body], name
