"""Empty modules in the place of what an engine imports and its ledger never calls."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence

from bench.sglang_reference.imports import Placeholder


class _EmptyModule(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, empty: Callable[[str], bool]) -> None:
        self._empty = empty

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if self._empty(name) else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def stand_in(bare: Sequence[str], absent: Sequence[str], unused: Sequence[str], used: Sequence[str] = ()) -> None:
    """Lets an engine's modules be imported without what they would pull in. Call once, before the first of them.

    Args:
        bare: packages whose __init__ is not run; their submodules are the engine's own.
        absent: top-level packages that are not installed.
        unused: the engine's modules, with all below them, that are empty here,
        used: but for these.

    Raises ModuleNotFoundError where the engine is not installed in this interpreter.
    """
    import torch  # noqa: F401  torch probes for packages by importing them: it must not find the placeholders

    engine = bare[0]
    found = importlib.util.find_spec(engine)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{engine} is not installed here", name=engine)
    root = found.submodule_search_locations[0]
    for name in bare:
        package = _EmptyModule(name)
        package.__path__ = ["/".join([root, *name.split(".")[1:]])]
        sys.modules[name] = package

    def empty(name: str) -> bool:
        inside = any(name == module or name.startswith(f"{module}.") for module in unused)
        return name.partition(".")[0] in absent or (inside and name not in used)

    sys.meta_path.insert(0, _Finder(empty))
