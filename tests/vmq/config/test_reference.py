"""`config/reference.toml` says what the code says, and `config/vmq.toml` only what differs."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from tests.conftest import BrokerFactory
from tests.support.wire import Wire
from vmq.config.load import load
from vmq.config.options import Config, StreamOptions
from vmq.config.plugins import UNWRITTEN
from vmq.config.reference import main as write_reference
from vmq.config.reference import reference
from vmq.config.sources import sections
from vmq.config.text import accepted, described
from vmq.plugins.checking import prepare

REFERENCE_FILE = Path(__file__).parents[3] / "config" / "reference.toml"
SHIPPED_FILE = REFERENCE_FILE.with_name("vmq.toml")


def test_the_reference_file_is_up_to_date() -> None:
    assert REFERENCE_FILE.read_text(encoding="utf-8") == reference(), "run `make reference`"


def test_the_reference_file_says_the_defaults() -> None:
    loaded = load(REFERENCE_FILE)
    assert loaded.config == Config()
    assert loaded.origin("queue.drop") == str(REFERENCE_FILE)


def test_every_option_has_a_meaning_and_says_what_it_accepts() -> None:
    text = reference()
    for section, struct, _ in sections(Config):
        for field in msgspec.structs.fields(struct):
            if section == "plugins" and field.name in UNWRITTEN:
                continue
            name = f"{section}.{field.name}"
            assert described(field.type).endswith("."), f"{name} has no sentence of meaning"
            assert "\n" not in described(field.type), f"{name} needs more than a line"
            assert accepted(field.type) in text
            assert f"{field.name} =" in text


def test_the_reference_is_written_or_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_reference([str(tmp_path / "reference.toml")])
    assert (tmp_path / "reference.toml").read_text(encoding="utf-8") == reference()
    write_reference([])
    assert capsys.readouterr().out == reference()


def test_the_reference_file_is_valid_toml() -> None:
    sections_written = set(tomllib.loads(REFERENCE_FILE.read_text(encoding="utf-8")))
    assert sections_written | {"jobs", "mappings", "plugins", "schedules", "streams"} == set(
        Config.__struct_fields__
    )


def test_the_commented_table_of_a_stream_is_valid_once_it_has_filters() -> None:
    text = reference()
    table = text[text.index("# [streams.NAME]") :].partition("\n\n")[0]
    options = [line[2:] for line in table.splitlines() if " = " in line[:25]]
    plain = tomllib.loads("\n".join(options).replace("...", '["a/#"]'))
    assert msgspec.convert(plain, StreamOptions) == StreamOptions(filters=["a/#"])


def test_the_shipped_file_sets_only_what_differs_from_the_defaults() -> None:
    assert tomllib.loads(SHIPPED_FILE.read_text(encoding="utf-8")) == {}
    assert load(SHIPPED_FILE).config == Config()
    assert "config/reference.toml" in SHIPPED_FILE.read_text(encoding="utf-8")


def test_the_examples_of_the_shipped_file_hold_once_they_are_no_comments(tmp_path: Path) -> None:
    text = SHIPPED_FILE.read_text(encoding="utf-8")
    examples = re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE)
    file = tmp_path / "vmq.toml"
    file.write_text(examples)
    loaded = load(file)
    named = {key.rpartition(".")[0] for key, _, _ in loaded.changed()}
    # Each table is there and says something that is no default, but for the default listeners and the log's level.
    tables = set(re.findall(r"^\[(.+)\]$", examples, re.MULTILINE))
    tables = {".".join(table.split(".")[:2]) for table in tables}
    assert len(tables) >= 14
    assert tables - {"listeners.tcp", "listeners.ws", "listeners.http"} <= named
    for name in Config().listeners:
        assert loaded.config.listeners[name] == Config().listeners[name]
    for name, section in loaded.config.plugins.items():
        assert prepare(name, section)


@pytest.mark.parametrize("file", [SHIPPED_FILE, REFERENCE_FILE])
def test_a_broker_starts_with_either_file(file: Path, fresh_broker: BrokerFactory) -> None:
    with Wire.connect_tcp(fresh_broker(args=("--config", str(file))).tcp) as client:
        client.connect("c")
