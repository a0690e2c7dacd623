"""The sample files in config/, the pages about the plugins and the reference say what the code says."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_acl import AclConfig
from vmq_acl.rules import parse as parse_rules
from vmq_bridge import BridgeConfig, BridgesConfig
from vmq_graphite import GraphiteConfig
from vmq_passwd import PasswdConfig
from vmq_passwd.users import parse as parse_users
from vmq_systree import SystreeConfig
from vmq_webhooks import EndpointConfig, WebhooksConfig

from vmq.config.reference import default_of, reference
from vmq.config.text import described, toml_value

ROOT = Path(__file__).parents[2]
CONFIGS: dict[str, type[msgspec.Struct]] = {
    "vmq_acl": AclConfig,
    "vmq_graphite": GraphiteConfig,
    "vmq_passwd": PasswdConfig,
    "vmq_systree": SystreeConfig,
}
#: Plugins whose options are tables by name, and these.
NAMED: dict[str, type[msgspec.Struct]] = {
    "vmq_bridge": BridgesConfig,
    "vmq_webhooks": WebhooksConfig,
}
TABLES: dict[str, type[msgspec.Struct]] = {
    "vmq_bridge.bridges": BridgeConfig,
    "vmq_webhooks.endpoints": EndpointConfig,
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


@pytest.mark.parametrize("name", TABLES)
def test_every_option_of_a_named_table_is_in_the_reference(name: str) -> None:
    section = reference().split(f"# [plugins.{name}.NAME]\n")[1].split("\n\n")[0]
    fields = msgspec.structs.fields(TABLES[name])
    for field in fields:
        assert described(field.type).endswith("."), f"{field.name} has no sentence of meaning"
    assert re.findall(r"^# (\w+) =", section, flags=re.MULTILINE) == [each.name for each in fields]


@pytest.mark.parametrize(("name", "kind"), [*CONFIGS.items(), *NAMED.items()])
def test_the_page_has_the_defaults_in_a_configuration(
    name: str, kind: type[msgspec.Struct]
) -> None:
    page = ROOT / "plugins" / name / "README.md"
    if not page.is_file():
        pytest.skip("the pages are not part of what is installed")
    [sample] = re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL)
    shown: dict[str, Any] = tomllib.loads(sample)["plugins"][name]
    assert msgspec.to_builtins(msgspec.convert(shown, kind))
    defaults = msgspec.to_builtins(kind())
    if name in NAMED:
        shown = {key: value for key, value in shown.items() if not isinstance(value, dict)}
        defaults = {key: defaults[key] for key in shown}
    assert shown == defaults
