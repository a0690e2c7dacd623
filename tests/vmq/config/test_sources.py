"""What is said of mistakes in the sources of a configuration."""

from pathlib import Path

import pytest

from tests.vmq.refusals import refused

WHOLE = "accepted: a whole number, 0 to 65535"
NUMBER = "accepted: a number, 0 to 86400"
NOBODY = "so no client could connect; add one"
NO_NAME = "not a usable name; accepted: a name of lower-case letters and digits"


@pytest.mark.parametrize(
    ("section", "option", "said"),
    [
        ("queue", "dorp = 1", "unknown option; did you mean 'drop'?"),
        ("queu", "drop = 1", "there is no section 'queu'; did you mean 'queue'?"),
        ("", "drop = 1", "an option stands in a section; did you mean queue.drop?"),
        ("", "hue = 1", "there is no section 'hue'; accepted: broker, log, auth,"),
        ("session", "drop = 1", "unknown option; did you mean queue.drop?"),
        ("log", "colour = 1", "unknown option; accepted: level, format"),
        ("queue", 'drop = "none"', 'accepted: "newest", "oldest"'),
        ("queue", "drop = {a = 1}", 'accepted: "newest", "oldest"'),
        ("queue", 'max_inflight_messages = "20"', WHOLE),
        ("queue", "max_inflight_messages = -1", WHOLE),
        ("queue", "max_inflight_messages = true", WHOLE),
        (
            "queue",
            f"max_bytes = {2**63 - 1}",
            f"accepted: a whole number, at least -1, at most {2**60}",
        ),
        ("queue", "max_offline_messages = -2", "accepted: a whole number, at least -1"),
        ("session", "mqtt_connect_timeout = 0", "accepted: a number, above 0, at most 3600"),
        ("session", "retry_interval = nan", NUMBER),
        ("session", "retry_interval = inf", NUMBER),
        ("session", "upgrade_outgoing_qos = 1", "accepted: true, false"),
        ("session", 'persistent_client_expiration = "12"', 'accepted: "never", or a number and'),
        ("auth", 'allow_anonymous = "yes"', 'accepted: "loopback", true, false'),
        ("broker", 'data_dir = ""', "accepted: a path"),
        ("broker", 'data_dir = "a\\u0000"', "accepted: a path"),
        ("", "queue = 5", "accepted: a table of options"),
        ("", "listeners = 5", "accepted: a table of options"),
        ("listeners", "tcp = 5", "accepted: a table of options"),
        ("listeners.a", 'url = "amqp://127.0.0.1:1"', "unknown scheme 'amqp'; accepted: tcp://HO"),
    ],
)
def test_a_wrong_option_is_told_with_file_key_value_and_what_is_accepted(
    file: Path, section: str, option: str, said: str
) -> None:
    file.write_text(f"[{section}]\n{option}" if section else option)
    (line,) = refused(path=file)
    assert line.startswith(f"{file}: {section}.{option}: {said}".replace(": .", ": "))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f'[broker]\ndata_dir = "a/{"b" * 256}"', "broker.data_dir = "),
        (f'[log]\nfile = "{"a/" * 2500}"', "log.file = "),
        (f'[cluster]\nkey_file = "{"k" * 300}"', "cluster.key_file = "),
        ("[listeners]", f"listeners: there is no listener, {NOBODY}"),
        ("[listeners.tcp]", "listeners.tcp.url: missing; accepted: tcp://HOST:PORT, tls://"),
        ("[listeners.tcp]\nallow_anonymous = true", "listeners.tcp.url: missing; accepted: tcp://"),
        ('[listeners.TCP]\nurl = "tcp://127.0.0.1:1"', f"listeners.TCP: {NO_NAME}"),
        ('[listeners.a__b]\nurl = "tcp://127.0.0.1:1"', f"listeners.a__b: {NO_NAME}"),
        (
            '[listeners.a]\nurl = "tcp://127.0.0.1:1"\n[listeners.b]\nurl = "ws://127.0.0.1:1"',
            'listeners.b.url = "ws://127.0.0.1:1": listeners.a has this address already',
        ),
        (
            '[listeners.a]\nurl = "http://127.0.0.1:1"',
            f"listeners: there is no listener for clients, {NOBODY}",
        ),
        ("queue = ", "configuration: not TOML: Invalid value (at end of document)"),
        ("[queue]\ndrop = 1\ndrop = 2", "configuration: not TOML: Cannot overwrite a value"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_the_file(file: Path, text: str, line: str) -> None:
    file.write_text(text)
    (said,) = refused(path=file)
    assert said.startswith(f"{file}: {line}")


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    file.write_text('[queue]\ndrop = "none"\nqueue_type = 3\n[sesion]\nx = 1\n')
    lines = refused(path=file, environ={"VMQ_LOG__LEVEL": "loud"}, overrides={"broker.data_dir": 7})
    assert sorted(line.partition(" =")[0] for line in lines) == sorted(
        [
            f"{file}: queue.drop",
            f"{file}: queue.queue_type",
            f"{file}: sesion.x",
            "environment VMQ_LOG__LEVEL: log.level",
            "command line: broker.data_dir",
        ]
    )


def test_a_missing_file_is_an_error(file: Path) -> None:
    (line,) = refused(path=file)
    assert line == f"{file}: configuration: the file cannot be read: No such file or directory"


def test_a_byte_order_mark_is_no_part_of_a_file(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbf[queue]\r\ndrop = "none"\r\n')
    (line,) = refused(path=file)
    assert line.startswith(f'{file}: queue.drop = "none": ')


def test_a_file_that_is_no_text_is_an_error(file: Path) -> None:
    file.write_bytes(b"[queue]\ndrop = '\xe4'\n")
    assert refused(path=file) == [f"{file}: configuration: not UTF-8: byte 0xe4 (at line 2)"]


def test_a_variable_with_one_underscore_behind_its_section_is_an_error() -> None:
    (line,) = refused(environ={"VMQ_QUEUE_MAX_BYTES": "5", "VMQ_QUEUE_PORT": "tcp://10.0.0.1:1883"})
    assert line == (
        "environment VMQ_QUEUE_MAX_BYTES: queue.max_bytes: did you mean VMQ_QUEUE__MAX_BYTES?"
    )


def test_an_unknown_variable_with_a_section_is_an_error() -> None:
    (line,) = refused(environ={"VMQ_QUEUE__DORP": "oldest"})
    assert line == (
        "environment VMQ_QUEUE__DORP: queue.dorp = \"oldest\": unknown option; did you mean 'drop'?"
    )


@pytest.mark.parametrize("name", ["VMQ___", "VMQ_QUEUE__", "VMQ_QUEUE__DROP__X", "VMQ___DROP"])
def test_misshapen_variables_are_errors(name: str) -> None:
    (line,) = refused(environ={name: "oldest"})
    assert line.startswith(f"environment {name}: ")


def test_an_unknown_override_is_an_error() -> None:
    (line,) = refused(overrides={"queue.dorp": "oldest"})
    assert line.startswith('command line: queue.dorp = "oldest": unknown option')


def test_long_values_are_cut_in_messages() -> None:
    (line,) = refused(environ={"VMQ_QUEUE__DROP": "x" * 10_000})
    assert len(line) < 300
