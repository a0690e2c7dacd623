"""What `vmq plugin new` writes: a plugin that works, to be changed into another."""

import importlib.util
import re
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")

_PROJECT: Final = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "vmq-{name}"
version = "0.1.0"
description = "A plugin for vmq"
requires-python = ">=3.11"
dependencies = ["vmq"]

[project.optional-dependencies]
test = ["pytest>=8.3"]

# By this the broker finds the plugin: [plugins.{name}] in its configuration.
[project.entry-points."vmq.plugins"]
{name} = "vmq_{name}:{type_name}"

[tool.setuptools]
packages = ["vmq_{name}"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

_PACKAGE: Final = '''\
"""{type_name}: whose client may publish what. Change it into what you need."""

from typing import Annotated

import msgspec
from vmq_hooks import Broker, Message, Plugin, Refuse, SubscriberId, hook


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of [plugins.{name}]."""

    prefix: Annotated[str, msgspec.Meta(description="Topics that everybody may publish to.")] = (
        "public/"
    )


class {type_name}(Plugin):
    """A client may publish below the prefix, and below its own client id."""

    Config = Options

    def start(self, broker: Broker, config: Options) -> None:
        """Called before the first hook; what it raises keeps the plugin from being loaded."""
        self.config = config
        self.refused = broker.counter("{name}_refused", "Publishes that {name} refused.")

    @hook
    def auth_on_publish(self, subscriber_id: SubscriberId, message: Message) -> bool | Refuse:
        """True accepts, Refuse refuses, None leaves it to the next plugin."""
        own = subscriber_id.client_id + "/"
        if message.topic.startswith((self.config.prefix, own)):
            return True
        self.refused.add()
        return Refuse("not its own topic")
'''

_TEST: Final = '''\
"""What {type_name} allows. The fixtures come with vmq (vmq.testing)."""

from typing import Any

import pytest
from vmq_hooks import Message, Refuse, SubscriberId

from vmq_{name} import {type_name}


@pytest.mark.parametrize(
    ("topic", "allowed"),
    (("public/news", True), ("lamp1/state", True), ("lamp2/state", False)),
)
def test_a_client_publishes_below_its_own_id(vmq_hooks: Any, topic: str, allowed: bool) -> None:
    with vmq_hooks({type_name}()) as plugin:
        verdict = plugin.call(
            "auth_on_publish",
            username=None,
            subscriber_id=SubscriberId("lamp1"),
            message=Message(topic, b"on"),
        )
    assert isinstance(verdict, Refuse) is not allowed


@pytest.mark.vmq(plugins={"{name}": {type_name}()})
def test_clients_of_a_broker_feel_it(vmq_client: Any) -> None:
    lamp = vmq_client("lamp1")
    lamp.publish("lamp1/state", "on", qos=1)
    with pytest.raises(ConnectionError):
        lamp.publish("lamp2/state", "on", qos=1)
'''

_README: Final = """\
# vmq-{name}

A plugin for vmq: a client may publish below `public/` and below its own client id.

In the environment that vmq runs in:

```
pip install -e '.[test]'
python -m pytest
```

In the broker's configuration:

```toml
[plugins.{name}]
prefix = "public/"
```

While the broker runs, `vmq plugin enable {name}` starts it, and `vmq plugin reload {name}` takes up changed code.
"""


class ProjectError(Exception):
    """The project cannot be written; the text says why."""


def write_project(name: str, folder: Path | None = None) -> list[Path]:
    """Writes a project for a plugin; returns its files.

    Raises:
        ProjectError: the name cannot be one, or the folder holds something already.
    """
    if not _NAME.match(name):
        raise ProjectError(
            f"{name!r} is no name for a plugin; accepted: lower-case letters and digits, joined by _"
        )
    if name.startswith("vmq_"):
        plain = name.removeprefix("vmq_")
        raise ProjectError(f"{name!r}: its package is vmq_NAME by itself; accepted: {plain!r}")
    if importlib.util.find_spec(f"vmq_{name}") is not None:
        raise ProjectError(f"the package vmq_{name} is installed already: give another name")
    root = Path(f"vmq-{name.replace('_', '-')}") if folder is None else folder
    type_name = "".join(each.capitalize() for each in [*name.split("_"), "plugin"])
    files = {
        "pyproject.toml": _PROJECT,
        "README.md": _README,
        f"vmq_{name}/__init__.py": _PACKAGE,
        f"vmq_{name}/py.typed": "",
        f"tests/test_{name}.py": _TEST,
    }
    written: list[Path] = []
    try:
        if root.exists() and any(root.iterdir()):
            raise ProjectError(f"{root} is not empty")
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            filled = text.replace("{name}", name).replace("{type_name}", type_name)
            file.write_text(filled, encoding="utf-8")
            written.append(file)
    except OSError as error:
        raise ProjectError(f"cannot write {error.filename or root}: {error.strerror}") from None
    return written
