"""`vmq config`: what the configuration says, without starting a broker."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmq.cli.terminal import settings
from vmq.cli.terminal.console import FAILURE, CliError, UsageError, error, table, warning
from vmq.cli.terminal.settings import ConfigOption
from vmq.config.text import HIDDEN, SECRETS, without_secrets

if TYPE_CHECKING:
    from vmq.cli.importing.rules import Imported
    from vmq.config.options import Config
    from vmq.plugins.checking import Checked

app = typer.Typer(
    help="Check or show the configuration, or import that of another broker.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command("check")
def check(config: ConfigOption = None) -> None:
    """Check the configuration: file, environment and defaults together.

    Opens what vmq start would, and starts nothing: certificates with their
    keys, the files of plugins and what these check themselves, data directory
    and log file, addresses, streams, the cluster's key. Prints "ok" and where
    the broker would listen; or every error, as vmq start would, and exits with
    2. Warnings tell of what works and is not right: a certificate that has
    expired.

    Who has a port or the data directory at the moment is not looked at: a
    broker that runs with this configuration does.

    \b
    Examples:
      vmq config check --config config/vmq.toml
      VMQ_QUEUE__DROP=oldest vmq config check
    """
    loaded = settings.load(config)
    checked = settings.preflight(loaded)
    for line in checked.warnings:
        warning(line)
    plugins = checked.plugins
    changed = sum(origin != "default" for _, _, origin in loaded.items())
    print(f"ok: {_count(changed, 'value')} set, the rest are defaults")
    for name, listener in loaded.config.listeners.items():
        if listener.endpoint.scheme == "http":
            remote = "yes" if listener.allow_remote else "no"
            print(f"  listener {name}: {listener.url} (other machines: {remote})")
            continue
        anonymous = _anonymous(loaded.config, name, plugins)
        print(f"  listener {name}: {listener.url} (anonymous clients: {anonymous})")
    store = loaded.config.store
    print(f"  data in {loaded.config.broker.data_dir} (durability: {store.durability})")


@app.command("show")
def show(
    config: ConfigOption = None,
    changed: bool = typer.Option(False, "--changed", help="Only what differs from the defaults."),
    as_json: bool = typer.Option(False, "--json", help="JSON: key -> value and origin."),
) -> None:
    """Show the effective value of every option, and where it comes from.

    Later sources win: the defaults, the file, VMQ_SECTION__OPTION in the
    environment, and the options of vmq start.

    \b
    Examples:
      vmq config show --config config/vmq.toml
      vmq config show --changed --config config/vmq.toml
      vmq config show --json | jq '."queue.drop".value'
    """
    loaded = settings.load(config)
    items = [
        (key, HIDDEN if value and key.endswith(SECRETS) else without_secrets(value), origin)
        for key, value, origin in (loaded.changed() if changed else loaded.items())
    ]
    if as_json:
        tree = {key: {"value": value, "origin": origin} for key, value, origin in items}
        print(json.dumps(tree, indent=2, ensure_ascii=False))
        return
    if not items:
        print("nothing differs from the defaults")
        return
    rows = [(key, _text(value), origin) for key, value, origin in items]
    table(("option", "value", "from"), rows)


@app.command("import")
def import_config(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="mosquitto.conf, vernemq.conf or emqx.conf."),
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Where vmq.toml and its files go.")
    ] = Path("vmq"),
    kind: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="BROKER",
            help="Whose it is: mosquitto, vernemq or emqx.",
            show_default="by the file's name",
        ),
    ] = None,
) -> int:
    """Make a configuration for vmq of another broker's.

    Writes vmq.toml, the files of users and of rules, and changes nothing that
    is there. Then lists every setting that could not be read or stands open
    without a hand, every one that has no counterpart (with what to do
    instead), and those that mean something else. Nothing is written that
    opens what the other broker keeps closed.

    Relative paths of certificates and logs are taken for paths beside FILE.
    Checks what was written as vmq config check does, and exits with 1 if that
    finds something, or a setting needs a hand.

    \b
    Examples:
      vmq config import /etc/mosquitto/mosquitto.conf --to config
      vmq config check --config config/vmq.toml
    """
    from vmq.cli.importing.rules import ImportProblem
    from vmq.cli.importing.write import READERS, kind_of, problems, write

    broker = kind or kind_of(file)
    if broker not in READERS:
        raise UsageError(f"--from: whose configuration is it? accepted: {', '.join(READERS)}")
    try:
        found = READERS[broker](file)
        written = write(found, file, to)
    except ImportProblem as problem:
        raise CliError(str(problem)) from None
    for path in written:
        print(path)
    _tell(found)
    wrong = problems(written[0])
    for text in wrong:
        error(text)
    return FAILURE if wrong or any(each.is_wrong for each in found.notes) else 0


def _tell(found: "Imported") -> None:
    """Prints what the operator has to know of an import."""
    for title, notes in (
        ("Needs a hand", [each for each in found.notes if each.is_wrong]),
        (
            "Without a counterpart",
            [each for each in found.notes if each.is_lost and not each.is_wrong],
        ),
        ("Different here", [each for each in found.notes if not each.is_lost]),
    ):
        if notes:
            print(f"\n{title}:")
            for note in notes:
                print(f"  {note}")


def _anonymous(config: "Config", name: str, plugins: "Checked") -> str:
    """Whether clients without credentials may connect at a listener, and who decides otherwise."""
    chosen = config.listeners[name].auth_plugins
    deciding, perhaps = plugins.who_decides("auth_on_register", chosen)
    is_open = config.anonymous_allowed(name)
    if is_open and not config.anonymous_until_hook(name):
        return "yes, and no plugin is asked" if deciding or perhaps else "yes"
    if deciding:
        return "no, but whom it lets in: " + ", ".join((*deciding, *perhaps))
    if perhaps:
        otherwise = "yes" if is_open else "no, and nobody else"
        return f"{otherwise}, unless {', '.join(perhaps)} serves auth_on_register"
    if chosen:
        return "no, and nobody else: none of its auth_plugins serves auth_on_register"
    return "yes" if is_open else "no"


def _text(value: object) -> str:
    """A value as the file would write it."""
    return "(unset)" if value is None else json.dumps(value, ensure_ascii=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
