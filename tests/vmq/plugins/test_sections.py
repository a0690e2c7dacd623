"""[plugins.NAME]: the broker's keys and the plugin's own, from the file to the plugin."""

from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from vmq.config.load import changed, load
from vmq.config.options import Config, ConfigError, PluginOptions
from vmq.config.plugins import own_config
from vmq.config.reload import changes


class Own(msgspec.Struct, forbid_unknown_fields=True):
    file: str
    interval: int = 10
    api_token: str = ""


def test_own_keys_go_to_the_plugin_and_the_others_to_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "vmq.toml"
    path.write_text(
        "[plugins.acl]\nfile = 'a.acl'\npriority = 3\n[plugins.other]\nenabled = false\n"
    )
    environ = {"VMQ_PLUGINS__ACL__INTERVAL": "30", "VMQ_PLUGINS__ACL__DEADLINE": "2.5"}
    config = load(path, environ).config
    acl = config.plugins["acl"]
    assert (acl.priority, acl.deadline, acl.enabled) == (3, 2.5, True)
    assert acl.stated_in == str(path)
    assert own_config("acl", acl, Own) == Own("a.acl", 30)
    assert not config.plugins["other"].enabled
    again = changed(config, "queue.drop", "oldest")
    assert again.plugins == config.plugins


@pytest.mark.parametrize(
    ("own", "texts"),
    (
        ({}, ["plugins.acl.file: missing; accepted: a text"]),
        ({"file": 3}, ["plugins.acl.file = 3", "accepted: a text", "vmq.toml: "]),
        ({"file": "a", "fil": "b"}, ["plugins.acl.fil", "did you mean 'file'?"]),
        ({"file": "a", "deadlin": 3}, ["plugins.acl.deadlin", "did you mean 'deadline'?"]),
        ({"file": "a", "api_token": 5}, ["plugins.acl.api_token: accepted: a text"]),
    ),
)
def test_what_is_wrong_is_named_with_what_is_accepted(
    own: dict[str, object], texts: list[str]
) -> None:
    options = PluginOptions(own_options=own, stated_in="vmq.toml")
    with pytest.raises(ConfigError) as caught:
        own_config("acl", options, Own)
    for text in texts:
        assert text in str(caught.value)


class Unsupported(msgspec.Struct):
    name: str | bytes


class Taken(msgspec.Struct):
    place: str = msgspec.field(name="path")


@pytest.mark.parametrize(
    ("kind", "why"),
    (
        (dict, "cannot be used; accepted: a subclass of msgspec.Struct"),
        (Unsupported, "cannot be used: "),
        (Taken, "has path; accepted: other names, these are the broker's"),
    ),
)
def test_a_config_that_cannot_be_used_is_the_plugins_mistake(
    kind: type[msgspec.Struct], why: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^plugins\.p: the plugin's Config {why}"):
        own_config("p", PluginOptions(own_options={"name": "a"}), kind)


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    password: str = ""


class Tables(msgspec.Struct, forbid_unknown_fields=True):
    far: dict[str, Inner] = {}


class DescribedTables(msgspec.Struct, forbid_unknown_fields=True):
    far: Annotated[dict[str, Inner], msgspec.Meta(extra={"accepts": "tables"})] = {}


@pytest.mark.parametrize("kind", (Tables, DescribedTables))
def test_a_mistake_in_a_table_is_named_and_its_secrets_are_not(kind: type[msgspec.Struct]) -> None:
    own = {"far": {"x": {"url": 5, "password": "s3cret"}}}
    with pytest.raises(ConfigError) as caught:
        own_config("p", PluginOptions(own_options=own), kind)
    assert str(caught.value) == "plugins.p.far.x.url = 5: accepted: a text"
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    (
        ("[plugins.acl]\npriority = 'high'", "plugins.acl.priority"),
        ("[plugins.acl]\ndeadline = 0", "above 0"),
        ("[plugins.ACL]\n", "not a usable name"),
        ("[plugins]\nacl = 3", "accepted: a table of options"),
        (
            "[listeners.a]\nurl='tcp://127.0.0.1:1'\nauth_plugins=['acl']",
            "there is no .plugins.acl",
        ),
    ),
)
def test_sections_that_make_no_sense_are_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "vmq.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        load(path)


def test_changes_of_plugins_are_live() -> None:
    def config(**plugins: PluginOptions) -> Config:
        return Config(plugins=plugins)

    found = changes(
        config(a=PluginOptions(), b=PluginOptions()),
        config(a=PluginOptions(own_options={"x": 1}), c=PluginOptions()),
    )
    seen = [(each.key, each.live) for each in found]
    assert seen == [("plugins.a.x", True), ("plugins.b", True), ("plugins.c", True)]
