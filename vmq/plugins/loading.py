"""Finding a plugin's class: in an installed package, or in a file or folder that the configuration names.

Each load executes the plugin's code anew, so that a reload gets what stands in the files now; the
modules of before stay whole for what still runs, and come back if the new code fails. Plugins of one
package share its modules: what was executed for one, another one takes, unless a file has changed since.
"""

import importlib
import importlib.util
import site
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from vmq_hooks import Plugin
from vmq_hooks.plugin import ENTRY_POINTS

from vmq.plugins.places import where_raised

_NUMBERS: Final = count(1)
#: Begins the names of modules that come from a path.
_PREFIX: Final = "vmq_plugin_"
#: Packages that are never executed anew.
_OURS: Final = frozenset({"vmq", "vmq_hooks", "vmq_cluster"})

#: Of files: name, size and time of change of each.
Stamp = tuple[tuple[str, int, int], ...]


class _Package(NamedTuple):
    """An installed package as it was executed last."""

    files: Stamp
    #: The plugins that were loaded from it, and have not stopped.
    users: set[str]


_PACKAGES: Final[dict[str, _Package]] = {}


class LoadError(Exception):
    """A plugin cannot be loaded; the text says which, and why."""


class NotThere(LoadError):
    """There is nothing to load: `what` is why, `option` which of the plugin's names it ("": the section)."""

    def __init__(self, name: str, option: str, what: str) -> None:
        super().__init__(f"plugin {name}: {what}")
        self.option = option
        self.what = what


def installed() -> list[str]:
    """The names of the plugins that installed packages offer."""
    return sorted({each.name for each in entry_points(group=ENTRY_POINTS)})


def load(name: str, path: Path | None) -> type[Plugin]:
    """The class of a plugin, from code that is read now.

    Without a path: the entry point of the name in the group `vmq.plugins`, else the package vmq_NAME.

    Raises:
        LoadError: there is no such plugin, or its code fails.
    """
    if path is not None:
        path = path.absolute()
    try:
        if path is not None:
            return _from_path(name, path)
        return _from_package(name)
    except LoadError:
        raise
    except BaseException as error:
        where = where_raised(error, _source(name, path))
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise LoadError(f"plugin {name}: {type(error).__name__}: {text}{where}") from error


def _source(name: str, path: Path | None) -> str:
    """Where the code of a plugin that could not be loaded lies; "" if that cannot be told."""
    if path is not None:
        return str(path)
    spec = importlib.util.find_spec(_package_of(name))
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    return folders[0] if folders else ""


def source_of(kind: type[Plugin]) -> str:
    """Where a plugin's code lies: its package's folder, or its file; "" if it has none."""
    return _place_of(kind.__module__)


def _place_of(module: str) -> str:
    top = sys.modules.get(module.partition(".")[0])
    folders = list(getattr(top, "__path__", ()))
    return str(folders[0] if folders else getattr(sys.modules.get(module), "__file__", None) or "")


def stamp_of(path: Path) -> Stamp:
    """How the files of a plugin are now."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    found: list[tuple[str, int, int]] = []
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        found.append((str(file), status.st_size, status.st_mtime_ns))
    return tuple(found)


def forget(name: str, kind: type[Plugin]) -> None:
    """A plugin has stopped: it needs its modules no more; those that come from a file nobody does."""
    top = kind.__module__.partition(".")[0]
    if top.startswith(_PREFIX):
        _forget(top)
    elif top in _PACKAGES:
        present = sys.modules.get(kind.__module__)
        if getattr(present, kind.__name__, None) is kind:  # else they were executed anew since
            _PACKAGES[top].users.discard(name)


def _from_path(name: str, path: Path) -> type[Plugin]:
    module = _execute(name, path)
    try:
        return _class_in(module, name)
    except BaseException:
        _forget(module.__name__)
        raise


def _execute(name: str, path: Path) -> ModuleType:
    """Executes a file, or a folder that is a package, under a name of its own."""
    file = path / "__init__.py" if path.is_dir() else path
    if not file.is_file():
        raise NotThere(name, "path", f"there is no file {file}")
    module_name = f"{_PREFIX}{name.replace('-', '_')}_{next(_NUMBERS)}"
    folders = [str(path)] if path.is_dir() else None
    spec = importlib.util.spec_from_file_location(
        module_name, file, submodule_search_locations=folders
    )
    if spec is None or spec.loader is None:
        raise NotThere(name, "path", f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with _from_source():
            spec.loader.exec_module(module)
    except BaseException:
        _forget(module_name)
        raise
    return module


def _from_package(name: str) -> type[Plugin]:
    found = [each for each in entry_points(group=ENTRY_POINTS) if each.name == name]
    if len({each.value for each in found}) > 1:
        values = ", ".join(sorted({each.value for each in found}))
        raise LoadError(f"plugin {name}: several packages offer it: {values}")
    if found:
        _follow(found[0])
        return _load_anew(name, found[0])
    importlib.invalidate_caches()
    package = _package_of(name)
    if importlib.util.find_spec(package) is None:
        there = ", ".join(installed()) or "none"
        what = f"not installed (installed: {there}); give plugins.{name}.path for a file"
        raise NotThere(name, "", what)
    return _load_anew(name, EntryPoint(name, package, ENTRY_POINTS))


def _follow(entry_point: EntryPoint) -> None:
    """Has Python find what was installed as editable since its start, when it reads the .pth files that say where."""
    top = entry_point.module.partition(".")[0]
    if entry_point.dist is None or importlib.util.find_spec(top) is not None:
        return
    for each in entry_point.dist.files or ():
        if each.suffix == ".pth":
            file = Path(str(each.locate()))
            site.addpackage(str(file.parent), file.name, None)


def _package_of(name: str) -> str:
    """The package that an installed plugin is: its entry point's, else the one of its name."""
    for each in entry_points(group=ENTRY_POINTS):
        if each.name == name:
            return each.module.partition(".")[0]
    return f"vmq_{name.replace('-', '_')}"


def _load_anew(name: str, entry_point: EntryPoint) -> type[Plugin]:
    """Loads an entry point from modules that are executed anew; on failure the old ones come back.

    Or from those that another plugin uses.
    """
    top = entry_point.module.partition(".")[0]
    before = _modules(top)
    others = _others(name, top)
    if not others and top not in _OURS:
        _forget(top)
    try:
        importlib.invalidate_caches()
        with _from_source():
            found = entry_point.load()
        kind = _class_in(found, name) if isinstance(found, ModuleType) else _checked(found, name)
    except BaseException:
        _forget(top)
        sys.modules.update(before)
        raise
    _PACKAGES[top] = _Package(stamp_of(Path(_place_of(top))), {name, *others})
    return kind


def _others(name: str, top: str) -> set[str]:
    """The plugins that use a package's modules as its files are now; none if this one does: it is loaded anew."""
    found = _PACKAGES.get(top)
    if found is None or name in found.users or stamp_of(Path(_place_of(top))) != found.files:
        return set()
    return found.users


def _modules(top: str) -> dict[str, ModuleType]:
    """A package's modules that are loaded."""
    return {
        name: module
        for name, module in sys.modules.items()
        if name == top or name.startswith(top + ".")
    }


def _forget(top: str) -> None:
    """Takes a package's modules out of the list of loaded ones."""
    for each in _modules(top):
        del sys.modules[each]


@contextmanager
def _from_source() -> Iterator[None]:
    """Writes no bytecode: its time stamps are too coarse to tell two edits within a second apart."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _class_in(module: ModuleType, name: str) -> type[Plugin]:
    """The one plugin that a module defines, or names in `plugin`."""
    named = getattr(module, "plugin", None)
    if named is not None and not isinstance(named, ModuleType):
        return _checked(named, name)
    found = {
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Plugin) and each is not Plugin
    }
    # Bases that the plugin imports or refines are no plugins of their own.
    found = {each for each in found if not any(each in other.__mro__[1:] for other in found)}
    if len(found) != 1:
        what = ", ".join(sorted(each.__name__ for each in found)) or "none"
        raise LoadError(
            f"plugin {name}: {module.__file__} has to define one subclass of vmq_hooks.Plugin "
            f"(it defines: {what}), or name it as `plugin`"
        )
    return found.pop()


def _checked(found: Any, name: str) -> type[Plugin]:
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise LoadError(f"plugin {name}: {found!r} is no subclass of vmq_hooks.Plugin")
    return found
