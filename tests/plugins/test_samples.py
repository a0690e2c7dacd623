"""The sample files in config/ and the pages about the plugins say what the code says."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from vmq_acl import AclConfig
from vmq_acl.rules import parse as parse_rules
from vmq_graphite import GraphiteConfig
from vmq_passwd import PasswdConfig
from vmq_passwd.users import parse as parse_users
from vmq_systree import SystreeConfig

from vmq.config.reference import default_of, reference
from vmq.config.text import described, toml_value

ROOT = Path(__file__).parents[2]
CONFIGS: dict[str, type[msgspec.Struct]] = {
    "vmq_acl": AclConfig,
    "vmq_graphite": GraphiteConfig,
    "vmq_passwd": PasswdConfig,
    "vmq_systree": SystreeConfig,
}


def test_the_sample_files_grant_nothing_as_they_come() -> None:
    rules, users = ROOT / "config/acl", ROOT / "config/passwd"
    assert parse_rules(rules.read_bytes(), rules) == []
    assert len(parse_users(users.read_bytes(), users)) == 0


def test_the_sample_rules_are_rules_once_they_are_no_comments() -> None:
    text = (ROOT / "config/acl").read_text()
    rules = re.sub(r"^#(?=(user|topic|pattern) )", "", text, flags=re.MULTILINE)
    assert len(parse_rules(rules.encode(), Path("acl"))) == 7


@pytest.mark.parametrize("name", CONFIGS)
def test_every_option_is_in_the_reference(name: str) -> None:
    text = reference()
    section = text[text.index(f"# [plugins.{name}]\n") :].split("\n\n")[0]
    for field in msgspec.structs.fields(CONFIGS[name]):
        assert described(field.type).endswith("."), f"{field.name} has no sentence of meaning"
        assert f"\n# {field.name} = {toml_value(default_of(field))}\n" in section + "\n"


@pytest.mark.parametrize("name", CONFIGS)
def test_every_option_is_on_the_plugins_page_with_its_default(name: str) -> None:
    page = ROOT / "plugins" / name / "README.md"
    if not page.is_file():
        pytest.skip("the pages are not part of what is installed")
    [sample] = re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL)
    shown = tomllib.loads(sample)["plugins"][name]
    assert shown == msgspec.to_builtins(CONFIGS[name]())
