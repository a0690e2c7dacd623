"""The version of vmq and how it was built, for whoever tells them: the package, `/status`, the metrics, the plugins."""

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final

__version__: Final = "0.1.0"


def is_compiled() -> bool:
    """Whether the core runs compiled (an extension module), not interpreted (a VMQ_PURE=1 build)."""
    spec = find_spec("vmq.core.trie")
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
