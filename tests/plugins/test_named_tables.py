"""The pages and the reference of plugins whose options are tables by name say what the code says."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from vmq_bridge import BridgeConfig, BridgesConfig
from vmq_webhooks import EndpointConfig, WebhooksConfig

from vmq.config.reference import reference
from vmq.config.text import described

ROOT = Path(__file__).parents[2]
CONFIGS: dict[str, type[msgspec.Struct]] = {
    "vmq_bridge": BridgesConfig,
    "vmq_webhooks": WebhooksConfig,
}
TABLES: dict[str, type[msgspec.Struct]] = {
    "vmq_bridge.bridges": BridgeConfig,
    "vmq_webhooks.endpoints": EndpointConfig,
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_sample_on_the_page_is_a_configuration(name: str) -> None:
    page = ROOT / "plugins" / name / "README.md"
    if not page.is_file():
        pytest.skip("the pages are not part of what is installed")
    [sample] = re.findall(r"```toml\n(.*?)```", page.read_text(), flags=re.DOTALL)
    section = tomllib.loads(sample)["plugins"][name]
    found = msgspec.convert(section, CONFIGS[name])
    plain = {key: value for key, value in section.items() if not isinstance(value, dict)}
    defaults = CONFIGS[name]()
    assert plain == {key: getattr(defaults, key) for key in plain}
    assert msgspec.to_builtins(found)


@pytest.mark.parametrize("name", TABLES)
def test_every_option_is_in_the_reference(name: str) -> None:
    section = reference().split(f"# [plugins.{name}.NAME]\n")[1].split("\n\n")[0]
    fields = msgspec.structs.fields(TABLES[name])
    for field in fields:
        assert described(field.type).endswith("."), f"{field.name} has no sentence of meaning"
    assert re.findall(r"^# (\w+) =", section, flags=re.MULTILINE) == [each.name for each in fields]
