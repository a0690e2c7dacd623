"""Compiles the core with mypyc; VMQ_PURE=1 builds the same files as plain Python."""

import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The modules on the path of every message. They use each other's classes natively, which needs one compilation group:
# one for each package that can be installed alone. Modules that define messages (msgspec.Struct) cannot be compiled.
COMPILED = (
    "vmq/disk/durable.py",
    "vmq/mqtt/packets.py",
    "vmq/mqtt/decoder.py",
    "vmq/mqtt/encoder.py",
    "vmq/mqtt/topics.py",
    "vmq/mqtt/special.py",
    "vmq/mqtt/message.py",
    "vmq/mqtt/runs.py",
    "vmq/mqtt/packet_ids.py",
    "vmq/mqtt/sorting.py",
    "vmq/core/limits.py",
    "vmq/core/states.py",
    "vmq/core/output.py",
    "vmq/core/source.py",
    "vmq/core/cork.py",
    "vmq/streams/serving/batch_commit.py",
    "vmq/streams/replay/sending.py",
    "vmq/core/on_commit.py",
    "vmq/core/losses.py",
    "vmq/core/ports.py",
    "vmq/core/context.py",
    "vmq/core/retained_burst.py",
    "vmq/core/window.py",
    "vmq/core/inflight.py",
    "vmq/core/waiting.py",
    "vmq/core/queue.py",
    "vmq/protocol/front_queue.py",
    "vmq/core/trie.py",
    "vmq/core/route_cache.py",
    "vmq/core/subscription_set.py",
    "vmq/core/subscriber.py",
    "vmq/core/stream_feed.py",
    "vmq/core/retained.py",
    "vmq/core/leaving.py",
    "vmq/core/away.py",
    "vmq/core/registry.py",
    "vmq/protocol/refusals.py",
    "vmq/protocol/changes.py",
    "vmq/protocol/connect.py",
    "vmq/protocol/client.py",
    "vmq/protocol/login.py",
    "vmq/protocol/publish.py",
    "vmq/protocol/acknowledgements.py",
    "vmq/protocol/subscribe.py",
    "vmq/protocol/session.py",
    "vmq/protocol/listener_context.py",
    "vmq/protocol/connection.py",
    "vmq/protocol/will.py",
    "vmq/protocol/rights.py",
    "vmq/protocol/retain_source.py",
    "vmq/protocol/will_publish.py",
    "vmq/store/sizes.py",
    "vmq/store/sent.py",
    "vmq/store/lines.py",
    "vmq/store/entries.py",
    "vmq/store/writes.py",
    "vmq/store/queue_entries.py",
    "vmq/store/store.py",
    "vmq/core/hook_sites.py",
    "vmq/runtime/deadlines.py",
    "vmq/clustering/delivery/outbox_storage.py",
    "vmq/clustering/delivery/outbox.py",
    "vmq/clustering/delivery/passing.py",
    "vmq/clustering/delivery/dispatch.py",
    "vmq/clustering/delivery/outboxes.py",
    "vmq/clustering/delivery/inbox.py",
    "vmq/clustering/routing/routing.py",
    "vmq/clustering/routing/shared_dispatch.py",
    "vmq/runtime/frequent.py",
    "vmq/runtime/connections.py",
    "vmq/runtime/client_ids.py",
    "vmq/listeners/trust.py",
    "vmq/listeners/addresses.py",
    "vmq/listeners/single_server.py",
    "vmq/listeners/acceptor.py",
    "vmq/listeners/listener.py",
    "vmq/listeners/time_limits.py",
    "vmq/listeners/tls.py",
    "vmq/jobs/ids.py",
    "vmq/jobs/timers.py",
    "vmq/jobs/rules.py",
    "vmq/jobs/queue.py",
    "vmq/jobs/record.py",
    "vmq/jobs/sharing_port.py",
    "vmq/jobs/order.py",
    "vmq/jobs/queues.py",
    "vmq/jobs/paging/columns.py",
    "vmq/jobs/paging/marks.py",
    "vmq/jobs/paging/page.py",
    "vmq/jobs/paging/pages.py",
    "vmq/jobs/paging/pager.py",
    "vmq/jobs/paging/views.py",
    "vmq/jobs/stock.py",
    "vmq/jobs/options.py",
    "vmq/jobs/machine.py",
    "vmq/jobs/commit.py",
    "vmq/jobs/calls.py",
    "vmq/jobs/sharing/peers.py",
    "vmq/jobs/sharing/outbox.py",
    "vmq/jobs/sharing/context.py",
    "vmq/jobs/sharing/walk.py",
    "vmq/jobs/sharing/vouching.py",
    "vmq/jobs/sharing/adding.py",
    "vmq/jobs/sharing/ending.py",
    "vmq/jobs/sharing/federation.py",
    "vmq/jobs/sharing/keys.py",
    "vmq/jobs/sharing/mending.py",
    "vmq/jobs/sharing/serving.py",
    "vmq/jobs/sharing/paged.py",
    "vmq/jobs/sharing/replicas.py",
    "vmq/jobs/sharing/post.py",
    "vmq/jobs/resp/reader.py",
    "vmq/jobs/resp/replies.py",
    "vmq/jobs/resp/adding.py",
    "vmq/jobs/resp/getting.py",
    "vmq/jobs/resp/door.py",
    "vmq/jobs/resp/user.py",
    "vmq/jobs/resp/connection.py",
    "vmq/jobs/storage/frames.py",
    "vmq/jobs/storage/walking.py",
    "vmq/jobs/storage/indexing.py",
    "vmq/jobs/storage/journal.py",
    "vmq/jobs/storage/plain.py",
    "vmq/jobs/storage/restoring.py",
    "vmq/jobs/listener.py",
)

# The machines of durable sessions in slots: they call the core's topics alone, and others call them by Python. They are
# in one group with the streams, for mypy reads as much for one group as for another.
COMPILED_SLOTS = (
    "vmq/clustering/slots/words.py",
    "vmq/clustering/slots/limits.py",
    "vmq/clustering/slots/register.py",
    "vmq/clustering/slots/queued.py",
    "vmq/clustering/slots/flow.py",
    "vmq/clustering/slots/cold.py",
    "vmq/clustering/slots/state.py",
    "vmq/clustering/slots/effects.py",
    "vmq/clustering/slots/reach.py",
    "vmq/clustering/slots/placement.py",
    "vmq/clustering/slots/here.py",
    "vmq/clustering/slots/records.py",
    "vmq/clustering/slots/merge.py",
    "vmq/clustering/slots/copies.py",
    "vmq/clustering/slots/followers.py",
    "vmq/clustering/slots/owned.py",
    "vmq/clustering/slots/away.py",
    "vmq/clustering/slots/sharing.py",
    "vmq/clustering/slots/subscribers.py",
    "vmq/clustering/slots/attachment.py",
    "vmq/clustering/slots/attachments.py",
    "vmq/clustering/slots/turns.py",
    "vmq/clustering/slots/owner.py",
    "vmq/clustering/slots/machine.py",
    "vmq/clustering/origin/routes.py",
    "vmq/clustering/origin/outbox.py",
    "vmq/clustering/origin/origin.py",
    "vmq/clustering/front/connection.py",
    "vmq/clustering/front/front.py",
    "vmq/clustering/front/sessions.py",
    "vmq/clustering/running/links.py",
    "vmq/clustering/running/connected.py",
    "vmq/clustering/running/fronts.py",
    "vmq/clustering/running/turn.py",
)

# What each batch of rows passes on its way into a replicated log, on all its nodes.
COMPILED_STREAMS = (
    "vmq/streams/log/keys.py",
    "vmq/streams/log/gathering.py",
    "vmq/streams/log/frame.py",
    "vmq/streams/log/small.py",
    "vmq/streams/log/index.py",
    "vmq/streams/log/commits.py",
    "vmq/streams/appender.py",
    "vmq/streams/replica/batches.py",
    "vmq/streams/replica/segment.py",
    "vmq/streams/replica/log.py",
    "vmq/clustering/raft/produce.py",
    "vmq/clustering/raft/producer.py",
    "vmq/clustering/raft/dotted.py",
    "vmq/clustering/raft/appender.py",
    "vmq/clustering/raft/groups/opened.py",
    "vmq/clustering/raft/groups/envelopes.py",
    "vmq/clustering/raft/groups/taking.py",
    "vmq/clustering/raft/groups/thread.py",
    "vmq/clustering/raft/groups/passes.py",
)

COMPILED_CLUSTER = (
    "cluster/vmq_cluster/clocks.py",
    "cluster/vmq_cluster/channels.py",
    "cluster/vmq_cluster/detector.py",
    "cluster/vmq_cluster/order.py",
    "cluster/vmq_cluster/machine.py",
    "cluster/vmq_cluster/followers.py",
    "cluster/vmq_cluster/node.py",
    "cluster/vmq_cluster/transport/traffic.py",
    "cluster/vmq_cluster/transport/bunches.py",
    "cluster/vmq_cluster/transport/unix.py",
    "cluster/vmq_cluster/transport/unix_listener.py",
    "cluster/vmq_cluster/raft/dots.py",
    "cluster/vmq_cluster/raft/state.py",
    "cluster/vmq_cluster/raft/replica.py",
    "cluster/vmq_cluster/raft/election.py",
    "cluster/vmq_cluster/raft/holes.py",
    "cluster/vmq_cluster/raft/following.py",
    "cluster/vmq_cluster/raft/progress.py",
    "cluster/vmq_cluster/raft/leading.py",
    "cluster/vmq_cluster/raft/group.py",
    "cluster/vmq_cluster/raft/routine.py",
    "cluster/vmq_cluster/raft/host.py",
)


# The commands of setuptools that compile. Installers ask for metadata first, which takes no mypy; an sdist holds none
# of the C that it makes.
COMPILING = {"build", "build_ext", "bdist_wheel", "editable_wheel", "develop", "install"}

# `make check` judges types. Here mypy reads the project alone and nothing that is installed: the same C comes out
# everywhere, also in the empty environment that pip builds in.
MYPY_OPTIONS = [
    "--config-file=",
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--explicit-package-bases",
    # Nothing is read from a cache here, and groups side by side would lock each other out of its database.
    f"--cache-dir={os.devnull}",
]

# What mypyc is to ask of the compiler; build_ext puts other options in its place.
OPTIMIZED = "-O3"

# Only PyInit is called from outside: hidden, the other functions call each other directly, in a file and across files.
# No warnings: nobody can mend generated code, and a compiler of tomorrow warns of more.
C_OPTIONS = ["-fvisibility=hidden", "-w"]

# What mypyc makes calls, counts references and jumps: what looks for values known before and for loops finds nothing in
# it. So of -O2 there is what inlines, allocates registers and lays code out. gcc takes two thirds of the time of -O3;
# messages take as much of it, within 5 % (-O1 with the inlining alone: up to 6 % more).
HOT_OPTIONS = [
    "-O1",
    "-finline-small-functions",
    "-finline-functions",
    "-findirect-inlining",
    "-fpartial-inlining",
    "-foptimize-sibling-calls",
    "-fstrict-aliasing",
    "-fipa-ra",
    "-fcaller-saves",
    "-fpeephole2",
    "-fthread-jumps",
    "-fcrossjumping",
    "-freorder-blocks-algorithm=stc",
    "-freorder-blocks-and-partition",
    "-freorder-functions",
    "-falign-functions",
    "-falign-jumps",
    "-falign-loops",
    "-falign-labels",
]

# Of these rooms no message of a single broker makes use: for them gcc takes a quarter less time than with -O1.
COLD_OPTIONS = ["-Og"]
COLD = ("vmq_cluster", "vmq.clustering", "vmq.jobs.sharing", "vmq.jobs.paging", "_core", "_logs")

# What each C file of a group begins with, once more in one file, which gcc reads once a group instead of once a file.
PRELUDE = "prelude.h"

# A folder for compiled C files, by what they were compiled from and with: who compiles the same sources again, also for
# another wheel, finds them there. None if it is not set.
OBJECTS = os.environ.get("VMQ_OBJECTS")
OBJECTS_KEPT_S = 7 * 86400


def digest_of(paths: Sequence[Path]) -> str:
    """Says whether any of those files has other content or another name."""
    found = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.name):
        found.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
    return found.hexdigest()


class ObjectCache:
    """Compiled files in a folder, by the content of everything that goes into them; paths do not count."""

    def __init__(self, folder: Path, compiler: list[str]) -> None:
        self._folder = folder
        version = subprocess.run([*compiler, "-v"], capture_output=True, text=True, check=True)
        self._common = f"{sys.version} {compiler} {version.stderr}"
        self._headers: dict[tuple[str, ...], str] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def place_of(self, source: str, options: dict[str, Any]) -> Path:
        """Where that source, compiled with these options of setuptools, lies or is to lie."""
        folders = tuple(options.get("include_dirs") or ())
        if folders not in self._headers:
            # mypyc's library is included as C, too.
            paths = {path for each in folders for path in Path(each).glob("*.[ch]")}
            self._headers[folders] = digest_of([each for each in paths if not is_generated(each)])
        said = [Path(each).name for each in options.get("extra_postargs") or ()]
        whole = (self._common, self._headers[folders], str(said), str(options.get("macros")))
        key = hashlib.sha256("\n".join(whole).encode() + Path(source).read_bytes())
        return self._folder / f"{key.hexdigest()}.o"

    def put(self, path: str, place: Path) -> None:
        """Keeps a file. Two builds may do so at once: nobody sees half of one."""
        part = place.with_suffix(f".{os.getpid()}")
        shutil.copyfile(path, part)
        part.replace(place)

    def tidy(self) -> None:
        """Removes what was not asked for in a week."""
        for path in self._folder.iterdir():
            if path.stat().st_mtime < time.time() - OBJECTS_KEPT_S:
                path.unlink(missing_ok=True)


def is_cold(source: str) -> bool:
    """Whether that is the C of a module of a cold room, or what a group of modules has in common."""
    return Path(source).stem.removeprefix("__native_").replace("___", ".").startswith(COLD)


def is_gcc(compiler: Sequence[str]) -> bool:
    """Whether a command calls gcc, also by way of ccache."""
    return any("gcc" in Path(word).name for word in compiler[:2])


def is_generated(path: Path) -> bool:
    """Whether that is C of a module, which no other includes."""
    return path.suffix == ".c" and path.name.startswith("__native")


class ParallelBuildExt(build_ext):  # type: ignore[misc]  # setuptools ships no types
    """Compiles the C files of an extension side by side: the core is one extension, of a file a module."""

    def build_extensions(self) -> None:
        # Some Pythons hand on where their own library lies: no extension needs it, and a wheel travels.
        linker = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        self.compiler.linker_so = linker
        compile_files = self.compiler.compile
        cache = ObjectCache(Path(OBJECTS), self.compiler.compiler_so) if OBJECTS else None
        # Another compiler has passes of other names.
        hot = HOT_OPTIONS if is_gcc(self.compiler.compiler_so) else [OPTIMIZED]

        def compile_one(source: str, options: dict[str, Any]) -> list[str]:
            optimized = COLD_OPTIONS if is_cold(source) else hot
            said = [each for each in options.get("extra_postargs") or () if each != OPTIMIZED]
            options = {**options, "extra_postargs": [*optimized, *said]}
            if cache is None:
                return list(compile_files([source], **options))
            place = cache.place_of(source, options)
            (made,) = self.compiler.object_filenames([source], output_dir=options["output_dir"])
            if place.is_file():
                Path(made).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(place, made)
                os.utime(place)
            else:
                compile_files([source], **options)
                cache.put(made, place)
            return [made]

        def compile_in_parallel(sources: list[str], **options: Any) -> list[str]:
            # The largest first, so that in the end no processor waits long for another.
            largest_first = sorted(sources, key=os.path.getsize, reverse=True)
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_one(source, options), largest_first)
                return [path for paths in made for path in paths]

        self.precompile()
        self.compiler.compile = compile_in_parallel
        super().build_extensions()
        if cache is not None:
            cache.tidy()

    def precompile(self) -> None:
        """Has gcc keep what it reads of a group's prelude. ccache could not keep what is compiled with that."""
        compiler = self.compiler.compiler_so
        kept = "gcc" in Path(compiler[0]).name
        working = []
        for prelude, extension in {prelude_of(each): each for each in self.extensions}.items():
            target = Path(f"{prelude}.gch")
            target.unlink(missing_ok=True)
            if kept:
                folders = [*extension.include_dirs, *self.compiler.include_dirs]
                options = [*(f"-I{each}" for each in folders), *extension.extra_compile_args[:-2]]
                command = [*compiler, *options, "-x", "c-header", prelude, "-o", str(target)]
                working.append(subprocess.Popen(command))
        # Where that fails, gcc reads the prelude for each file.
        for each in working:
            each.wait()


def prelude_of(extension: Extension) -> str:
    """The prelude of an extension's group, which stands last among its options."""
    return str(extension.extra_compile_args[-1])


def compiled_modules() -> list[Extension]:
    """The extension modules of this build: none in a pure one."""
    if os.environ.get("VMQ_PURE") == "1" or not COMPILING.intersection(sys.argv):
        return []
    # The shared library of a group becomes vmq/_core__mypyc: inside the package, where an editable install finds it.
    groups = (
        ("vmq._core", COMPILED),
        ("vmq._logs", COMPILED_SLOTS + COMPILED_STREAMS),
        ("vmq_cluster._core", COMPILED_CLUSTER),
    )
    # mypy takes one processor: each group has a process. Forked, since an installer runs this file as no module.
    fork = multiprocessing.get_context("fork")
    receivers = []
    for name, paths in groups:
        receiver, sender = fork.Pipe(duplex=False)
        fork.Process(target=send_group, args=(sender, name, paths)).start()
        sender.close()
        receivers.append(receiver)
    made: list[Extension] = []
    for receiver in receivers:
        try:
            made += receiver.recv()
        except EOFError:
            sys.exit("mypyc failed: what it said stands above")
    return made


def send_group(sender: Connection, name: str, paths: tuple[str, ...]) -> None:
    """Makes a group in a process of its own."""
    sender.send(compile_group(name, paths))


def compile_group(name: str, paths: tuple[str, ...]) -> list[Extension]:
    """The extension modules of those sources that there are."""
    from mypyc.build import mypycify

    sources = [path for path in paths if Path(path).is_file()]
    if not sources:
        return []
    os.environ["MYPYPATH"] = os.pathsep.join(("hooks", "cluster", "plugins"))
    target = Path("build", name)
    extensions = mypycify(
        [*MYPY_OPTIONS, *sources],
        opt_level=OPTIMIZED.removeprefix("-O"),
        debug_level="0",
        group_name=name,
        multi_file=True,
        target_dir=str(target),
    )
    folder, short = name.rpartition(".")[::2]
    prelude = target / folder / PRELUDE
    headers = ("Python.h", "CPy.h", f"__native_{short}.h", f"__native_internal_{short}.h")
    prelude.write_text("".join(f"#include <{each}>\n" for each in headers))
    for extension in extensions:
        options = [*extension.extra_compile_args, *C_OPTIONS, "-include", str(prelude)]
        extension.extra_compile_args = options
        # Other options make other objects of the same C.
        extension.depends = [*extension.depends, "setup.py"]
        # mypyc puts the headers of a group whose name has dots into a folder, and looks for them beside it. What the
        # prelude includes, shims of modules find, too.
        folders = [*extensions[0].include_dirs, str(target), str(target / folder)]
        extension.include_dirs = list(dict.fromkeys(folders))
    return extensions


setup(
    ext_modules=compiled_modules(),
    cmdclass={"build_ext": ParallelBuildExt},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
