"""Compilation options for Numba, and a disk cache that survives edits, power cuts and moves.

Only this file uses private names of Numba. If a version of Numba lacks one of them, compiled code is not
cached, because stale code might be loaded, and a warning says so.
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
    "nogil": True,  # the reading thread runs beside the kernel
    # No reference counting, which costs more than the work of a short row. So kernels cannot allocate.
    "_nrt": False,
    "error_model": "numpy",  # no branch for division by zero
    # Sums may be reordered and vectorised. Without nnan, ninf and arcp, damaged numbers stay visible and
    # quotients stay correctly rounded.
    "fastmath": {"reassoc", "contract", "nsz"},
    "no_cfunc_wrapper": True,  # no second copy for calls from C
}


def kernel(function: Callable, name: str | None = None, **more: Any) -> Any:
    """Compile `function` with the project's options, and cache it until a file with kernels changes.

    `name` must be unique. A function needs one if it has free variables, which may be compiled functions and
    numbers. `more` replaces options of Numba.
    """
    _set_name(function, name)
    dispatcher = numba.njit(**(OPTIONS | more))(function)
    if dispatcher is not function:  # NUMBA_DISABLE_JIT leaves it as it is
        _keep(dispatcher, function)
    return dispatcher


def inlined(function: Callable, name: str | None = None, **more: Any) -> Any:
    """Compile a function into its callers, which saves the cost of a call. Python code cannot call it."""
    _set_name(function, name)
    return numba.njit(**(OPTIONS | {"forceinline": True} | _for_callers_alone() | more))(function)


def _set_name(function: Callable, name: str | None) -> None:
    if name is not None:
        function.__name__ = function.__qualname__ = name
    elif function.__closure__:
        raise TypeError(f"{function.__qualname__} has free variables, so it needs a name to be cached by")


def allocating(function: Callable, name: str | None = None, **more: Any) -> Any:
    return kernel(function, name, _nrt=True, **more)


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
    """Return the seconds of a clock that stops while functions are compiled or loaded."""
    return time.perf_counter() - (_compiling.duration if _compiling.done else 0.0)


# -- inlined functions --------------------------------------------------------------------------------


@functools.cache
def _for_callers_alone() -> dict[str, Any]:
    """Return Numba options that link a function into its callers without compiling it separately.

    By default Numba optimises a function five times if it is inlined through four others, which is half of
    the compile time. The options are empty if Numba lacks the private names.
    """
    from numba.core import codegen, compiler

    library: Any = getattr(codegen, "JITCodeLibrary", object)
    needed = ("_optimize_final_module", "_finalize_final_module", "get_pointer_to_function",
              "_finalize_dynamic_globals")  # fmt: skip
    if not all(hasattr(library, name) for name in needed) or not hasattr(compiler, "Compiler"):
        return {}
    refuse = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value  # raises TypeError

    class Library(library):
        def _optimize_final_module(self) -> None:
            pass  # the callers are optimised instead

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            return refuse or 0

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Refuse references to Python objects, which an inlined function cannot hold."""
            if environment.consts:
                raise NotImplementedError(f"{name}: an inlined function refers to Python objects")

    class Compiler(compiler.Compiler):
        def define_pipelines(self) -> Any:
            self.state.library = Library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            return super().define_pipelines()

    return {"no_cpython_wrapper": True, "pipeline_class": Compiler}


# -- the cache -------------------------------------------------------------------------------------

_KERNELS = re.compile(rb"\n@(kernel|inlined|allocating|compiled|intrinsic)\b")  # ten times as fast as with ^
# All files in these folders count, because kernels use their constants.
_COMPILED = ("kernels", "losses", "published", "chains")
_DIGEST = 32  # bytes of SHA-256
_SAID = "said-compiling"  # file touched when a process reports that it compiles


@functools.cache
def source_digest(folder: Path) -> str:
    """Hash all files with compiled functions or their argument types.

    Numba compares only the file of a function, and would load code with a stale inlined function.
    """
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(folder.rglob("*.py"))]:
        text = path.read_bytes()
        compiled = path.parent.name in _COMPILED or b"(NamedTuple)" in text or _KERNELS.search(text)
        if path == Path(__file__) or compiled:
            digest.update(text)
    return digest.hexdigest()


def _keep(dispatcher: Any, function: Callable) -> None:
    package = sys.modules[function.__module__.partition(".")[0]]
    if not hasattr(package, "__path__"):
        return  # a script, whose callees the digest of a folder would not cover
    try:
        folder = Path(package.__path__[0])
        if not hasattr(dispatcher, "_cache"):
            raise AttributeError("this version of Numba keeps it elsewhere")
        dispatcher._cache = _cache_class()(function, source_digest(folder))
    except RuntimeError:  # Numba found no writable folder
        where = "neither the package's folder nor a home folder can be written to"
        _warn_of_cache(f"{_NOT_KEPT}: {where}; set NUMBA_CACHE_DIR to a folder that can")
    except Exception as error:  # Numba's private names differ
        _warn_of_cache(f"{_NOT_KEPT}: {error}")


_warned: list[str] = []


def _warn_of_cache(what: str) -> None:
    """Warn once per process, not for each kernel."""
    if not _warned:
        _warned.append(what)
        warnings.warn(what, StreamsvmWarning, stacklevel=2)


_NOT_KEPT = "compiled code cannot be kept, so each start compiles for some seconds"


def _names(function: Callable) -> tuple[str, ...]:
    """Return the full name of a function, and the names or values of its free variables."""

    def describe(value: Any) -> str:
        value = getattr(value, "py_func", value)  # a compiled function
        if isinstance(value, int | float):
            return repr(value)
        return f"{value.__module__}.{value.__qualname__}"  # AttributeError if the value has no name

    return describe(function), *(describe(cell.cell_contents) for cell in function.__closure__ or ())


@functools.cache
def _cache_class() -> Any:
    from numba.core import caching
    from numba.core.runtime import rtsys

    numba_files: Any = caching.IndexDataCacheFile
    places = caching.CompileResultCacheImpl._locator_classes
    in_home: Any = next(each for each in places if each.__name__.endswith("UserWideCacheLocator"))
    for name in ("_load_index", "_load_data", "_save_data", "_dump", "_data_path", "_open_for_write"):
        getattr(numba_files, name)  # raises AttributeError if Numba's class differs
    for name in ("_index_key", "_load_overload"):
        getattr(caching.FunctionCache, name)

    class Home(in_home):
        """Locator in the home folder. Without one, Numba would make a folder ~ in the current folder."""

        def ensure_cache_path(self) -> None:
            if not os.path.isabs(self.get_cache_path()):
                raise FileNotFoundError("no home folder")
            super().ensure_cache_path()

    class Impl(caching.CompileResultCacheImpl):
        _locator_classes = [Home if each is in_home else each for each in places]  # noqa: RUF012

    class Files(numba_files):
        """Cache entries with a checksum and their key; damaged or foreign entries are compiled again.

        A power cut can truncate a file or fill it with zeros. The checksum is compared before the entry is
        unpickled and before LLVM reads it, because LLVM may end the process. An entry also contains the
        digest of its sources and its types, because concurrent compilations may mix up files.
        """

        target_context: Any = None  # target of the loaded code

        def _load_index(self) -> dict:
            try:
                return super()._load_index()
            except Exception:
                self._discard(self._index_path)
                return {}

        def load(self, key: Any) -> Any:
            found = super().load(key)
            return found[2] if found is not None and found[:2] == (self._source_stamp, key) else None

        def save(self, key: Any, data: Any) -> None:
            super().save(key, (self._source_stamp, key, data))

        def _load_data(self, name: str) -> Any:
            path = self._data_path(name)
            content = Path(path).read_bytes()
            packed = memoryview(content)[_DIGEST:]
            if b"NRT_" in content:  # Numba compiles its memory functions in each process
                rtsys.initialize(self.target_context)
            try:
                if hashlib.sha256(packed).digest() != content[:_DIGEST]:
                    raise ValueError("damaged")
                return pickle.loads(packed)
            except Exception:
                self._discard(path)
                return None

        def _save_data(self, name: str, data: Any) -> None:
            packed = self._dump(data)
            with self._open_for_write(self._data_path(name)) as file:
                file.write(hashlib.sha256(packed).digest() + packed)

        @staticmethod
        def _discard(path: str) -> None:
            with contextlib.suppress(OSError):
                os.unlink(path)

    class Cache(caching.FunctionCache):
        """Cache of one function, with keys that are the same in every process.

        Numba's keys contain a pickle of the free variables, which for compiled functions differs between
        processes. These keys contain names, and the digest of the sources identifies the code behind them.
        """

        _impl_class = Impl

        def __init__(self, function: Callable, digest: str) -> None:
            super().__init__(function)
            self._names = _names(function)
            stamp = self._impl.locator.get_source_stamp(), digest
            if not isinstance(self._cache_file, numba_files):
                raise AttributeError("this version of Numba keeps it in other files")
            self._cache_file = Files(self._cache_path, self._impl.filename_base, stamp)

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return sig, codegen.magic_tuple(), self._names

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            # Numba would first import and register everything it can compile. Loading compiled code needs
            # only the functions that the machine code calls.
            files: Any = self._cache_file
            files.target_context = target_context
            found = None
            with contextlib.suppress(Exception):  # intact, but not loadable by this Numba
                found = self._load_overload(sig, target_context)
            if found is None:  # Numba compiles it next
                tell_of_compiling(Path(Impl(kernel).locator.get_cache_path(), _SAID))
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except OSError as error:  # full disk: the code still runs from memory
                _warn_of_cache(f"{_NOT_KEPT}: {error}")

    return Cache
