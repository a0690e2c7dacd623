"""The operations of the API on plugins; see `vmq.http.operations`."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.admin import (
    plugins,
)
from vmq.http.operation import List, Operation
from vmq.http.operations.common import listed
from vmq.plugins.shadow import ShadowReport


class OnePlugin(Struct, forbid_unknown_fields=True):
    """Which plugin."""

    name: Annotated[str, Meta(description="As in [plugins.NAME]")]


class ReloadPlugin(Struct, forbid_unknown_fields=True):
    """Which plugin, and how."""

    name: Annotated[str, Meta(description="As in [plugins.NAME]")]
    force: Annotated[
        bool,
        Meta(
            description="Also if the new code serves an auth hook no more that the old one serves"
        ),
    ] = False
    commit: Annotated[
        bool, Meta(description="The code that was tried, instead of what the files hold by now")
    ] = False


class ShadowPlugin(Struct, forbid_unknown_fields=True):
    """Which plugin to try with its code as it is now, and for how long."""

    name: Annotated[str, Meta(description="As in [plugins.NAME]")]
    seconds: Annotated[float, Meta(gt=0, le=86_400)] = 60.0


PLUGIN_OPERATIONS: Final = (
    Operation(
        "list_plugins",
        "GET",
        "/plugins",
        "List the plugins",
        List,
        plugins.PluginRow,
        lambda context, wanted: listed(
            plugins.PluginRow, plugins.list_plugins(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "enable_plugin",
        "POST",
        "/plugin/enable",
        "Load and start a plugin",
        OnePlugin,
        plugins.PluginRow,
        lambda context, wanted: plugins.enable(context.broker, wanted.name),
    ),
    Operation(
        "disable_plugin",
        "POST",
        "/plugin/disable",
        "Take a plugin out of the chains and stop it",
        OnePlugin,
        plugins.PluginRow,
        lambda context, wanted: plugins.disable(context.broker, wanted.name),
    ),
    Operation(
        "reload_plugin",
        "POST",
        "/plugin/reload",
        "Start a plugin's code as it is now, in place of what runs",
        ReloadPlugin,
        plugins.PluginRow,
        lambda context, wanted: plugins.reload(
            context.broker, wanted.name, force=wanted.force, commit=wanted.commit
        ),
    ),
    Operation(
        "shadow_plugin",
        "POST",
        "/plugin/shadow",
        "Have a plugin's code as it is now asked beside what runs, without effect",
        ShadowPlugin,
        ShadowReport,
        lambda context, wanted: plugins.shadow(context.broker, wanted.name, wanted.seconds),
    ),
    Operation(
        "show_shadow",
        "GET",
        "/plugin/shadow",
        "Show where code that was tried answered otherwise",
        OnePlugin,
        ShadowReport,
        lambda context, wanted: plugins.show_shadow(context.broker, wanted.name),
    ),
)
