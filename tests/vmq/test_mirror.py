"""Tests mirror files: vmq/**/X.py is tested by tests/vmq/**/test_X.py, or stands in the list below."""

import ast
from pathlib import Path

import vmq

SOURCES = Path(vmq.__file__).parent
TESTS = Path(__file__).parent

#: Modules without a test file of their own: the file that tests them, and why it is another.
ELSEWHERE = {
    "protocol/client.py": ("protocol/test_session.py", "what a session is, and how it waits"),
    "protocol/login.py": (
        "protocol/test_session.py",
        "what follows a CONNECT, as a client meets it",
    ),
    "core/subscriber.py": ("core/test_registry.py", "what a registry has"),
    "core/stream_feed.py": (
        "streams/serving/test_service.py",
        "what reaches streams, as their clients see it",
    ),
    "core/detached.py": (
        "clustering/takeover/test_local_sessions.py",
        "what a session is on its way",
    ),
    "streams/parking.py": ("streams/test_damaged.py", "what waits beside a damaged partition"),
    "jobs/calls.py": ("jobs/test_embedded.py", "programs in the places of clients"),
    "jobs/commit.py": ("jobs/test_service.py", "seen in what clients are told, and when"),
    "jobs/listener.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/metrics.py": ("jobs/test_service.py", "seen in the figures of a broker"),
    "jobs/__init__.py": ("jobs/test_client.py", "what the room offers to programs"),
    "admin/jobs/queues.py": ("cli/admin/test_jobs.py", "seen in the command"),
    "admin/jobs/dump.py": ("cli/admin/test_jobs.py", "seen in the command"),
    "admin/jobs/schedules.py": ("jobs/test_schedules.py", "what the schedules tell of themselves"),
    "admin/jobs/why.py": ("cli/admin/test_jobs.py", "seen in the command"),
    "http/operation.py": ("http/test_openapi.py", "what every operation has"),
    "http/job_operations.py": ("http/test_openapi.py", "a table"),
    "jobs/control.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/mqtt/delayed.py": ("jobs/mqtt/test_due.py", "what is kept until it is due"),
    "jobs/mqtt/port.py": ("jobs/mqtt/test_working.py", "seen by clients of a broker"),
    "jobs/options.py": ("jobs/test_service.py", "the options of a command, and of a topic"),
    "jobs/stock.py": ("jobs/test_machine.py", "how jobs get to the machine's queues"),
    "protocol/changes.py": ("protocol/test_publish.py", "seen in what is published"),
    "jobs/queue.py": ("jobs/test_machine.py", "seen in the order of jobs"),
    "jobs/queues.py": ("jobs/test_machine.py", "the names of the machine's queues"),
    "jobs/record.py": ("jobs/storage/test_restoring.py", "what is written"),
    "jobs/resp/adding.py": ("jobs/test_service.py", "the arguments of a command"),
    "jobs/resp/commands.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/resp/connection.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/resp/door.py": ("jobs/test_service.py", "what connections share"),
    "jobs/resp/getting.py": ("jobs/test_service.py", "the arguments of a command"),
    "jobs/resp/replies.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/resp/scanning.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/resp/shown.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/resp/user.py": ("jobs/test_service.py", "seen by clients of a broker"),
    "jobs/storage/frames.py": ("jobs/storage/test_restoring.py", "seen in what is restored"),
    "jobs/storage/journal.py": ("jobs/storage/test_restoring.py", "seen in what is restored"),
    "jobs/storage/segments.py": ("jobs/storage/test_restoring.py", "seen in what is restored"),
    "__init__.py": ("test_package.py", "`test___init__` is no name"),
    "version.py": ("test_package.py", "what the package tells of itself"),
    "config/__init__.py": ("test_package.py", "what the package offers"),
    "clustering/directory/heard.py": (
        "clustering/node/test_initial_sync.py",
        "what a node that starts waits for",
    ),
    "clustering/hinted_handoff/giving.py": (
        "clustering/hinted_handoff/test_redirect.py",
        "seen in what sessions elsewhere get",
    ),
    "clustering/messages/sessions.py": (
        "clustering/node/test_session_questions.py",
        "what a node is asked, and says",
    ),
    "clustering/messages/wills.py": ("clustering/node/test_wills.py", "what nodes keep"),
    "runtime/session_figures.py": ("admin/test_sessions.py", "seen in the rows of sessions"),
    "cli/start/foreground.py": ("cli/start/test_start.py", "seen in the command"),
    "__main__.py": ("cli/test_command_line.py", "only runs as a program"),
    "admin/bans.py": ("runtime/test_banning.py", "seen in a running broker"),
    "listeners/addresses.py": ("../listeners/test_limits.py", "seen by clients of a broker"),
    "config/listeners.py": ("config/test_checks.py", "seen by way of `load`"),
    "config/text.py": ("config/test_sources.py", "seen in the texts of errors"),
    "runtime/connections.py": ("test_broker.py", "seen in the clients of a broker that ends"),
    "config/core.py": ("config/test_reload.py", "what a broker takes over from its configuration"),
    "runtime/client_ids.py": ("test_broker.py", "seen in the clients that bring none"),
    "startup/listening.py": ("test_broker.py", "seen in what clients find at each address"),
    "persistence/restoring.py": ("test_broker.py", "seen in a broker that starts again"),
    "runtime/errors.py": ("test_broker.py", "seen in brokers that cannot start"),
    "streams/serving/opening.py": (
        "streams/serving/test_service.py",
        "seen in brokers with streams",
    ),
    "runtime/process.py": ("runtime/test_metrics.py", "seen in the gauges of the process"),
    "clustering/node/metrics.py": (
        "clustering/node/test_node.py",
        "seen in the figures of a broker",
    ),
    "clustering/takeover/port.py": (
        "clustering/takeover/test_machine.py",
        "a face; the world has another side of it",
    ),
    "clustering/hinted_handoff/service.py": (
        "clustering/hinted_handoff/test_hints_out.py",
        "brings both sides into a broker",
    ),
    "clustering/takeover/sending.py": (
        "clustering/takeover/test_machine.py",
        "half of the machine",
    ),
    "clustering/takeover/state.py": (
        "clustering/takeover/test_machine.py",
        "what the machine remembers",
    ),
    "plugins/places.py": ("plugins/test_reload.py", "seen in what authors are told"),
    "plugins/protection.py": ("plugins/test_reload.py", "seen in what operators are told"),
    "cli/admin/page.py": ("../page/test_coming_in.py", "seen in the browser that it lets in"),
    "cli/demo/parts.py": ("cli/demo/test_command.py", "seen in a demo that runs"),
    "cli/demo/server.py": ("cli/demo/test_command.py", "seen in a demo that runs"),
    "cli/demo/self_test.py": ("cli/demo/test_command.py", "run by a demo"),
    "http/keys.py": ("http/test_app.py", "only names what the app holds"),
    "http/report.py": ("workers/test_figures.py", "what workers tell of themselves"),
    "runtime/share.py": ("workers/test_plan.py", "what a worker is told of its part"),
    "workers/asking.py": ("workers/test_supervisor.py", "seen in what all answer as one"),
    "workers/pool.py": ("workers/test_supervisor.py", "seen in what all answer as one"),
    "workers/local.py": ("workers/test_supervisor.py", "seen in what all answer as one"),
    "workers/frontend.py": ("workers/test_supervisor.py", "seen in what all answer as one"),
    "workers/tailing.py": ("workers/test_supervisor.py", "seen in what all answer as one"),
    "workers/tracing.py": ("workers/test_supervisor.py", "seen in what all answer as one"),
    "workers/views.py": ("workers/test_supervisor.py", "seen in what all answer as one"),
    "cli/start/worker.py": (
        "workers/test_supervisor.py",
        "the processes, as `vmq start` runs them",
    ),
    "cli/start/workers.py": (
        "workers/test_supervisor.py",
        "the processes, as `vmq start` runs them",
    ),
    "http/server.py": ("http/test_app.py", "the listener under the app"),
    "listeners/renewing.py": ("../listeners/test_reload.py", "seen by clients of a broker"),
    "clustering/messages/streams.py": (
        "clustering/messages/test_codec.py",
        "messages, to and from bytes",
    ),
    "clustering/streams/definitions.py": (
        "clustering/streams/test_service.py",
        "seen in what other nodes have",
    ),
    "clustering/streams/owners.py": (
        "clustering/streams/test_handover.py",
        "seen in nodes that join and leave",
    ),
    "clustering/streams/remote_partitions.py": (
        "clustering/streams/test_service.py",
        "seen in what readers find",
    ),
    "clustering/streams/rows.py": (
        "clustering/streams/test_handover.py",
        "seen in what nodes give each other",
    ),
    "clustering/streams/records.py": (
        "clustering/streams/test_metadata.py",
        "reads and writes what is tested there",
    ),
    "streams/extents.py": ("clustering/streams/test_service.py", "seen in what readers are told"),
    "streams/places.py": (
        "clustering/streams/test_service.py",
        "only names what the cluster brings",
    ),
    "streams/log/columns.py": ("streams/log/test_cursor.py", "seen in what readers get"),
    "streams/log/errors.py": ("streams/log/test_cursor.py", "seen in what readers are told"),
    "streams/log/schema.py": ("streams/log/test_cursor.py", "seen in what readers get"),
    "streams/log/segment.py": (
        "streams/log/test_recovery.py",
        "seen in what can be read of its files",
    ),
    "http/stream_tail.py": ("cli/data/test_stream_tail.py", "by way of the command"),
    "cli/data/stored_streams.py": (
        "cli/data/test_stream.py",
        "the commands that look into a folder",
    ),
    "bench/connect.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "bench/control.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "bench/flow.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "bench/retained.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "store/entries.py": ("store/test_store.py", "what the store writes"),
    "bench/subscribing.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "bench/storm.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "bench/wildcard.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "bench/wiring.py": ("bench/test_scenarios.py", "scenarios run as a whole"),
    "clustering/messages/farewell.py": (
        "clustering/node/test_leaving.py",
        "what nodes say when they leave",
    ),
    "clustering/messages/barrier.py": (
        "clustering/routing/test_subscribe_barrier.py",
        "seen in what nodes send each other",
    ),
    "clustering/messages/base.py": (
        "clustering/messages/test_codec.py",
        "the form that all messages share",
    ),
    "streams/serving/batch_commit.py": (
        "streams/serving/test_sinks.py",
        "the waiting part of a sink",
    ),
    "admin/streams.py": ("http/test_api.py", "seen in what the API answers"),
    "clustering/replication/lag.py": (
        "clustering/replication/test_leader.py",
        "what copies may lack, as an owner notes it",
    ),
    "clustering/replication/promotion.py": (
        "clustering/replication/test_service.py",
        "seen in sessions made of copies",
    ),
    "clustering/replication/follower_state.py": (
        "clustering/replication/test_leader.py",
        "an owner's view of one node",
    ),
    "clustering/front/front.py": (
        "../simulator/test_sessions.py",
        "seen in what clients of the seeded world get",
    ),
    "clustering/front/sessions.py": (
        "../simulator/test_sessions.py",
        "all machines of a node together",
    ),
    "clustering/slots/attachments.py": (
        "../simulator/test_sessions.py",
        "seen in what clients of the seeded world get",
    ),
    "clustering/slots/effects.py": (
        "../simulator/test_sessions.py",
        "seen in what the seeded world does with them",
    ),
    "clustering/slots/here.py": (
        "../simulator/test_sessions.py",
        "only names what the machines of a node share",
    ),
    "clustering/slots/machine.py": (
        "../simulator/test_sessions.py",
        "views, takeover and handover are several nodes'",
    ),
    "clustering/slots/subscribers.py": (
        "../simulator/test_sessions.py",
        "seen in what clients of the seeded world get",
    ),
    "clustering/slots/owned.py": (
        "clustering/slots/test_owner.py",
        "what is safe, as others are told of it",
    ),
    "clustering/slots/records.py": ("clustering/slots/test_merge.py", "states as records"),
    "clustering/slots/register.py": ("clustering/slots/test_merge.py", "a part of the state"),
    "clustering/slots/state.py": ("clustering/slots/test_merge.py", "what is merged"),
    "clustering/messages/slots.py": (
        "../simulator/test_sessions.py",
        "the seeded world sends them as bytes",
    ),
    "clustering/messages/fronts.py": (
        "../simulator/test_sessions.py",
        "the seeded world sends them as bytes",
    ),
    "store/walk.py": ("store/test_tools.py", "the walk behind check and repair"),
    "plugins/loaded.py": ("plugins/test_loading.py", "what a loaded plugin is"),
    "plugins/implementations.py": ("plugins/test_loading.py", "what a loaded plugin brings"),
    "plugins/steps.py": ("plugins/test_chains.py", "the links of chains"),
    "cli/admin/trace.py": ("tracing/test_tracer.py", "the command, as a program"),
    "http/trace.py": ("tracing/test_tracer.py", "by way of the command"),
    "config/session.py": (
        "plugins/test_verdicts.py",
        "seen in the sessions that a plugin changes",
    ),
    "config/plugins.py": ("plugins/test_sections.py", "the sections of plugins"),
    "admin/plugins.py": ("cli/admin/test_plugin.py", "the commands, as programs"),
    "cli/admin/plugin_project.py": ("cli/admin/test_plugin.py", "what `vmq plugin new` writes"),
    "admin/errors.py": ("admin/test_sessions.py", "seen in what the admin functions return"),
    "admin/payloads.py": ("admin/test_queues.py", "seen in what the admin functions return"),
    "admin/queue_state.py": ("admin/test_sessions.py", "seen in what the admin functions return"),
    "cli/admin/client.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/asking.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/api_key.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/ban.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/listener.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/queue.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/retain.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/terminal/rows.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/session.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "cli/admin/why.py": ("cli/admin/test_admin.py", "the admin commands, as programs"),
    "http/operations.py": ("http/test_api.py", "the table behind the API"),
    "cli/main.py": ("cli/test_command_line.py", "the commands, as programs"),
    "cli/mqtt/options.py": ("cli/test_pub_sub.py", "the options, as programs take them"),
    "cli/mqtt/pub.py": ("cli/test_pub_sub.py", "each is the other's far end"),
    "cli/terminal/settings.py": ("cli/test_config.py", "seen in what the commands show"),
    "cli/terminal/signature.py": ("cli/admin/test_admin.py", "the options that commands share"),
    "cli/mqtt/sub.py": ("cli/test_pub_sub.py", "each is the other's far end"),
    "cli/mqtt/subscriber.py": ("cli/test_pub_sub.py", "the running part of `vmq sub`"),
    "cli/mqtt/trace.py": ("cli/test_pub_sub.py", "what -d prints"),
    "cli/mqtt/transport.py": ("cli/mqtt/test_client.py", "the client's byte streams"),
}

#: Test files that mirror no module, and why.
NO_MIRROR = {
    "test_put_off.py": "queue, store and commits together: what is never written",
    "jobs/test_docs.py": "docs/jobs.md",
    "jobs/test_redis_cli.py": "the command-line client of Redis against a broker",
    "cli/test_imports.py": "what whole commands load",
    "cli/mqtt/test_closing.py": "how the commands end: client, transport and program together",
    "test_mirror.py": "the rule itself",
    "clustering/test_directories.py": "directories of several nodes over a network that splits",
    "clustering/test_lane_model.py": "random walks over one lane and its store",
    "clustering/test_moves_and_deaths.py": "brokers that die while sessions move",
    "clustering/test_splits.py": "brokers on the sides of a split network, and what they have of sessions after it",
    "clustering/test_users.py": "whose sessions are, on several nodes: no one module",
    "plugins/test_asking.py": "the handle of a running broker: gauges and streams",
    "plugins/test_clients.py": "a real client against plugins",
    "streams/test_catalog_declare.py": "the catalog, as plugins use it",
    "plugins/test_reload.py": "plugins that change under traffic",
    "plugins/test_verdicts.py": "what plugins answer, as clients meet it",
    "plugins/test_sections.py": "the sections of plugins, from the file to the plugin",
    "test_flows.py": "random walks over sessions, queues and the store together",
    "test_backlog.py": "the queue of a durable session, with its store",
    "test_netsplit.py": "sessions while the cluster is split",
    "test_hostile.py": "random walks over what a peer may send",
    "test_packet_states.py": "random walks through the states of a connection",
    "streams/test_docs.py": "docs/streams.md",
    "streams/test_log_model.py": "random walks over one partition and its readers",
    "test_failing_disk.py": "commits that fail",
    "test_hook_calls.py": "sessions, as hooks see them",
    "test_killed_at_commits.py": "sessions and the store, at the death of a broker",
    "test_share_groups.py": "the members of a group, and which of them gets a message",
    "test_store_commits.py": "the store while it commits",
    "test_store_model.py": "random walks over the store alone",
    "test_stored_queue.py": "queue and store together",
    "test_package.py": "the package as a whole",
    "cli/test_command_line.py": "the commands, as programs",
    "cli/admin/test_admin.py": "the admin commands, as programs",
    "workers/test_clients.py": "real clients of several processes",
    "workers/test_moving.py": "data that other processes take over",
    "cli/test_pub_sub.py": "two commands against each other",
}


def modules() -> set[str]:
    """Every module that does something, by its path below vmq."""
    found = {path.relative_to(SOURCES).as_posix(): path for path in SOURCES.rglob("*.py")}
    return {name for name, path in found.items() if not only_names(path)}


def only_names(path: Path) -> bool:
    """Whether there is nothing to run: the docstring of a package, or protocols that others fulfil."""
    body = ast.parse(path.read_text()).body
    rest = [each for each in body if not isinstance(each, ast.Expr | ast.ImportFrom | ast.Import)]
    if not rest:
        return path.name == "__init__.py"
    return any(is_protocol(each) for each in rest) and all(
        is_protocol(each) or isinstance(each, ast.If) for each in rest
    )


def is_protocol(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any(
        isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases
    )


def mirrored(name: str) -> str:
    """The test file of a module, below tests/vmq."""
    path = Path(name)
    return path.with_name("test_" + path.name).as_posix()


def test_every_module_has_its_test_file_or_a_reason() -> None:
    missing = {
        name for name in modules() - set(ELSEWHERE) if not (TESTS / mirrored(name)).is_file()
    }
    assert missing == set()


def test_every_test_file_has_its_module_or_a_reason() -> None:
    files = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert files - {mirrored(name) for name in modules()} - set(NO_MIRROR) == set()


def test_the_lists_of_exceptions_are_up_to_date() -> None:
    there = modules()
    for name, (file, reason) in ELSEWHERE.items():
        assert name in there, f"{name} is no module"
        assert (TESTS / file).is_file(), f"{file} is no test file"
        assert not (TESTS / mirrored(name)).is_file(), f"{name} has its own test file"
        assert reason
    for file in NO_MIRROR:
        assert (TESTS / file).is_file(), f"{file} is no test file"
