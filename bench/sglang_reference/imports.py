"""Imports SGLang's prefix caches without the rest of the engine.

`sglang.srt.mem_cache` is pure bookkeeping, but importing it pulls in kernels, model configurations and an HTTP stack.
This module stands empty modules in for what the trees never call, so that torch on a CPU and three small packages are
enough. What is measured (trees, allocator, sessions, eviction policies, the Rust core) is SGLang's own code, unchanged.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence

ABSENT_PACKAGES = ("PIL", "aiter", "pybase64", "requests", "starlette", "triton", "zmq")
UNUSED_MODULES = (
    "sglang.srt.configs",
    "sglang.srt.layers",
    "sglang.srt.managers",
    "sglang.srt.mem_cache.hybrid_cache",
    "sglang.srt.observability.metrics_collector",
)
# Packages whose __init__ imports the whole engine; their submodules are SGLang's own.
BARE_PACKAGES = ("sglang", "sglang.srt")


class _PlaceholderMeta(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


class Placeholder(metaclass=_PlaceholderMeta):
    """Stands for any name of an absent module: a base class, a decorator, a type argument."""

    def __init__(self, *args: object, **kwargs: object) -> None: ...

    def __init_subclass__(cls, **kwargs: object) -> None: ...

    def __class_getitem__(cls, item: object) -> type:
        return cls

    def __call__(self, *args: object, **kwargs: object) -> object:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getattr__(self, name: str) -> "Placeholder":
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder()


class _PlaceholderModule(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


class _PlaceholderFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        absent = name.partition(".")[0] in ABSENT_PACKAGES
        unused = any(name == module or name.startswith(module + ".") for module in UNUSED_MODULES)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent or unused else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _PlaceholderModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


def prepare() -> None:
    """Makes `import sglang.srt.mem_cache...` work. Call once, before the first such import.

    Raises ModuleNotFoundError when sglang is not installed in this interpreter.
    """
    import torch  # noqa: F401  torch probes for triton by importing it: it must not find the placeholder

    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("sglang is not installed here: run bench/sglang_venv.sh", name="sglang")
    root = spec.submodule_search_locations[0]
    for name in BARE_PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = ["/".join([root, *name.split(".")[1:]])]
        sys.modules[name] = package
    sys.meta_path.insert(0, _PlaceholderFinder())
