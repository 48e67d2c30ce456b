"""Decorators that compile functions with Numba, and a disk cache for the compiled code.

The cache notices edits of any kernel, and tolerates files damaged by power cuts. Only this file uses private
names of Numba. If Numba lacks a name that the cache needs, a warning says that nothing is cached.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import pickle
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numba.core.event

from streamsvm.base.progress import tell_of_compiling
from streamsvm.errors import StreamsvmWarning

# At level DEBUG, Numba logs 200,000 lines for each compilation.
if logging.getLogger("numba").level == logging.NOTSET:
    logging.getLogger("numba").setLevel(logging.INFO)

OPTIONS: dict[str, Any] = {
    "nogil": True,  # the reading thread keeps running during a kernel
    # Kernels cannot allocate, because reference counting costs more than the work for a short row.
    "_nrt": False,
    "error_model": "numpy",  # no branch for division by zero
    # Sums may be reordered and vectorised. nnan, ninf and arcp are left out, because NaN and infinity must
    # be detected and quotients must be correctly rounded.
    "fastmath": {"reassoc", "contract", "nsz"},
    "no_cfunc_wrapper": True,  # no second copy for calls from C
}


def kernel(function: Callable, name: str | None = None, **options: Any) -> Any:
    """Compile `function` with the project's options, and cache it until a file with kernels changes.

    `name` must be unique, and is required for a function with free variables. `options` override `OPTIONS`.
    """
    _set_name(function, name)
    dispatcher = numba.njit(**(OPTIONS | options))(function)
    if dispatcher is not function:  # equal under NUMBA_DISABLE_JIT
        _enable_cache(dispatcher, function)
    return dispatcher


def inlined(function: Callable, name: str | None = None, **options: Any) -> Any:
    """Compile a function to be inlined into its callers, to avoid calls. It cannot be called from Python."""
    _set_name(function, name)
    return numba.njit(**(OPTIONS | {"forceinline": True} | _inline_options() | options))(function)


def _set_name(function: Callable, name: str | None) -> None:
    if name is not None:
        function.__name__ = function.__qualname__ = name
    elif function.__closure__:
        raise TypeError(f"{function.__qualname__} has free variables; pass a `name` for the cache")


def allocating(function: Callable, name: str | None = None, **options: Any) -> Any:
    return kernel(function, name, _nrt=True, **options)


def compiler() -> dict[str, str]:
    config: Any = numba.config
    name = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    has_wide_vectors = "+avx512f" in features.split(",")
    return {"numba": numba.__version__, "processor": f"{name} with AVX-512" if has_wide_vectors else name}


_compiling: Any = numba.core.event.TimingListener()
numba.core.event.register("numba:compiler_lock", _compiling)


def running_time() -> float:
    """Return the time in seconds on a clock that stops while functions are compiled or loaded."""
    return time.perf_counter() - (_compiling.duration if _compiling.done else 0.0)


@functools.cache
def _inline_options() -> dict[str, Any]:
    """Return Numba options that link a function into its callers without compiling it separately.

    Without these options, Numba optimises a function at each level of inlining, which doubles compile times.
    """
    from numba.core import codegen, compiler

    library: Any = getattr(codegen, "JITCodeLibrary", object)
    methods = ("_optimize_final_module", "_finalize_final_module", "get_pointer_to_function",
               "_finalize_dynamic_globals")  # fmt: skip
    if not all(hasattr(library, name) for name in methods) or not hasattr(compiler, "Compiler"):
        return {}
    raise_error = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value

    class Library(library):
        def _optimize_final_module(self) -> None:
            pass  # the callers are optimised instead

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            return raise_error or 0

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            if environment.consts:
                raise NotImplementedError(f"the inlined function {name} refers to Python objects")

    class Compiler(compiler.Compiler):
        def define_pipelines(self) -> Any:
            self.state.library = Library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            return super().define_pipelines()

    return {"no_cpython_wrapper": True, "pipeline_class": Compiler}


_KERNEL = re.compile(rb"\n@(kernel|inlined|allocating|compiled|intrinsic)\b")  # ten times as fast as with ^
# All files in these folders are hashed, because kernels use constants that the files define.
_KERNEL_FOLDERS = ("kernels", "losses", "published", "chains")
_DIGEST_BYTES = 32
_NOTICE_FILE = "said-compiling"  # file that is touched when a process reports that it is compiling


@functools.cache
def source_digest(folder: Path) -> str:
    """Hash all files with compiled functions or their types; Numba checks only the file of each function."""
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(folder.rglob("*.py"))]:
        text = path.read_bytes()
        compiled = path.parent.name in _KERNEL_FOLDERS or b"(NamedTuple)" in text or _KERNEL.search(text)
        if path == Path(__file__) or compiled:
            digest.update(text)
    return digest.hexdigest()


def _enable_cache(dispatcher: Any, function: Callable) -> None:
    package = sys.modules[function.__module__.partition(".")[0]]
    if not hasattr(package, "__path__"):
        return  # a script, whose callees would not be covered by the digest of a package folder
    try:
        folder = Path(package.__path__[0])
        if not hasattr(dispatcher, "_cache"):
            raise AttributeError("this version of Numba has no attribute `_cache`")
        dispatcher._cache = _cache_class()(function, source_digest(folder))
    except RuntimeError:
        reason = "neither the package folder nor the home folder is writable"
        _warn_of_cache(f"{_NOT_CACHED}: {reason}; set NUMBA_CACHE_DIR to a writable folder")
    except Exception as error:  # the private names of Numba have changed
        _warn_of_cache(f"{_NOT_CACHED}: {error}; install another version of Numba")


_warned: list[str] = []


def _warn_of_cache(message: str) -> None:
    if not _warned:  # once per process, not for each kernel
        _warned.append(message)
        warnings.warn(message, StreamsvmWarning, stacklevel=2)


_NOT_CACHED = "compiled code cannot be cached, so every process spends some seconds compiling it again"


def _names(function: Callable) -> tuple[str, ...]:
    """Return the full name of a function, and the names or values of its free variables."""

    def describe(value: Any) -> str:
        value = getattr(value, "py_func", value)
        if isinstance(value, int | float):
            return repr(value)
        return f"{value.__module__}.{value.__qualname__}"  # AttributeError if the value has no name

    return describe(function), *(describe(cell.cell_contents) for cell in function.__closure__ or ())


@functools.cache
def _cache_class() -> Any:
    from numba.core import caching
    from numba.core.runtime import rtsys

    numba_files: Any = caching.IndexDataCacheFile
    locators = caching.CompileResultCacheImpl._locator_classes
    home_locator: Any = next(cls for cls in locators if cls.__name__.endswith("UserWideCacheLocator"))
    for name in ("_load_index", "_load_data", "_save_data", "_dump", "_data_path", "_open_for_write"):
        getattr(numba_files, name)  # raises AttributeError if Numba's class lacks the name
    for name in ("_index_key", "_load_overload"):
        getattr(caching.FunctionCache, name)

    class Home(home_locator):
        """Locator of the cache in the home folder. Without a home folder, Numba would create a folder `~`."""

        def ensure_cache_path(self) -> None:
            if not os.path.isabs(self.get_cache_path()):
                raise FileNotFoundError("no home folder")
            super().ensure_cache_path()

    class Impl(caching.CompileResultCacheImpl):
        _locator_classes = [Home if cls is home_locator else cls for cls in locators]  # noqa: RUF012

    class Files(numba_files):
        """Files of cache entries, stored with a checksum, the digest of the sources, and the key.

        A power cut can truncate a file or fill it with zeros. The checksum is verified before the entry is
        unpickled and passed to LLVM, which may crash on damaged code. Digest and key are compared because
        concurrent processes may overwrite each other's files. Entries that do not match are compiled again.
        """

        target_context: Any = None

        def _load_index(self) -> dict:
            try:
                return super()._load_index()
            except Exception:
                self._discard(self._index_path)
                return {}

        def load(self, key: Any) -> Any:
            entry = super().load(key)
            return entry[2] if entry is not None and entry[:2] == (self._source_stamp, key) else None

        def save(self, key: Any, data: Any) -> None:
            super().save(key, (self._source_stamp, key, data))

        def _load_data(self, name: str) -> Any:
            path = self._data_path(name)
            content = Path(path).read_bytes()
            payload = memoryview(content)[_DIGEST_BYTES:]
            if b"NRT_" in content:  # Numba compiles its memory functions anew in each process
                rtsys.initialize(self.target_context)
            try:
                if hashlib.sha256(payload).digest() != content[:_DIGEST_BYTES]:
                    raise ValueError("damaged")
                return pickle.loads(payload)
            except Exception:
                self._discard(path)
                return None

        def _save_data(self, name: str, data: Any) -> None:
            payload = self._dump(data)
            with self._open_for_write(self._data_path(name)) as file:
                file.write(hashlib.sha256(payload).digest() + payload)

        @staticmethod
        def _discard(path: str) -> None:
            with contextlib.suppress(OSError):
                os.unlink(path)

    class Cache(caching.FunctionCache):
        """Cache of one function, with keys that are the same in every process.

        Numba's keys contain a pickle of the free variables, which for compiled functions differs between
        processes. These keys contain names instead, and the digest of the sources identifies the code.
        """

        _impl_class = Impl

        def __init__(self, function: Callable, digest: str) -> None:
            super().__init__(function)
            self._names = _names(function)
            stamp = self._impl.locator.get_source_stamp(), digest
            if not isinstance(self._cache_file, numba_files):
                raise AttributeError("this version of Numba uses another class for cache files")
            self._cache_file = Files(self._cache_path, self._impl.filename_base, stamp)

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return sig, codegen.magic_tuple(), self._names

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            # Numba would first import and register everything that it can compile, which takes a long time.
            files: Any = self._cache_file
            files.target_context = target_context
            overload = None
            with contextlib.suppress(Exception):  # an intact entry that this version of Numba cannot load
                overload = self._load_overload(sig, target_context)
            if overload is None:
                tell_of_compiling(Path(Impl(kernel).locator.get_cache_path(), _NOTICE_FILE))
            return overload

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except OSError as error:  # full disk: the code still runs from memory
                _warn_of_cache(f"{_NOT_CACHED}: {error}; free disk space or set NUMBA_CACHE_DIR")

    return Cache
