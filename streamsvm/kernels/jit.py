"""How functions are compiled: Numba's options, and a cache on disk that survives edits, power cuts and moves.

All private names of Numba that this project uses are in this file. If a version of Numba lacks one of them,
compiled code is not cached, and a warning says so: otherwise stale code could be loaded.
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

# A program that logs everything at the level DEBUG would get 200,000 lines of each compilation.
if logging.getLogger("numba").level == logging.NOTSET:
    logging.getLogger("numba").setLevel(logging.INFO)

OPTIONS: dict[str, Any] = {
    "nogil": True,  # the reading thread runs beside the kernel
    # Without reference counts, whose calls cost more than the work of a short row. Nothing can be allocated
    # then.
    "_nrt": False,
    "error_model": "numpy",  # a division needs no branch for zero
    # Sums may be reordered and vectorised. Not nnan, ninf or arcp: damaged numbers must stay visible, and a
    # quotient must stay correctly rounded.
    "fastmath": {"reassoc", "contract", "nsz"},
    "no_cfunc_wrapper": True,  # a second copy to be called from C, which nobody does
}


def kernel(function: Callable, name: str | None = None, **more: Any) -> Any:
    """Compile `function` with the project's options, and cache it until any file with kernels changes.

    Parameters
    ----------
    function : callable
        Its free variables, if it has any, may be compiled functions and numbers.
    name : str, optional
        Required for a function with free variables: a name of its own, by which it is cached.
    **more
        Options of Numba that replace the project's.
    """
    _set_name(function, name)
    dispatcher = numba.njit(**(OPTIONS | more))(function)
    if dispatcher is not function:  # NUMBA_DISABLE_JIT leaves it as it is
        _keep(dispatcher, function)
    return dispatcher


def inlined(function: Callable, name: str | None = None, **more: Any) -> Any:
    """Compile a function that is inlined into its callers, and that no Python code may call.

    Each array argument of a call is unpacked into seven scalars; the call overhead exceeds the work of small
    kernels. It becomes machine code as a part of its callers alone, and is cached with them.
    """
    _set_name(function, name)
    return numba.njit(**(OPTIONS | {"forceinline": True} | _for_callers_alone() | more))(function)


def _set_name(function: Callable, name: str | None) -> None:
    """Set a function's name, which one that has free variables must have."""
    if name is not None:
        function.__name__ = function.__qualname__ = name
    elif function.__closure__:
        raise TypeError(f"{function.__qualname__} has free variables, so it needs a name to be cached by")


def allocating(function: Callable, name: str | None = None, **more: Any) -> Any:
    """Compile a function that allocates arrays."""
    return kernel(function, name, _nrt=True, **more)


def compiler() -> dict[str, str]:
    """Return the version of Numba, and the processor that it compiles for."""
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
    """Return the seconds of a clock that stands still while functions are compiled or loaded."""
    return time.perf_counter() - (_compiling.duration if _compiling.done else 0.0)


# -- functions that are inlined --------------------------------------------------------------------


@functools.cache
def _for_callers_alone() -> dict[str, Any]:
    """Return options by which a function is linked into its callers, neither optimised nor compiled alone.

    By default Numba does both, and a function that is inlined through four others is optimised five times:
    that is half of the time of compiling. Empty if this version of Numba has other names.
    """
    from numba.core import codegen, compiler

    library: Any = getattr(codegen, "JITCodeLibrary", object)
    needed = ("_optimize_final_module", "_finalize_final_module", "get_pointer_to_function",
              "_finalize_dynamic_globals")  # fmt: skip
    if not all(hasattr(library, name) for name in needed) or not hasattr(compiler, "Compiler"):
        return {}
    refuse = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value  # raises TypeError

    class Library(library):
        """LLVM's intermediate code of one function."""

        def _optimize_final_module(self) -> None:
            pass  # its callers will

        def _finalize_final_module(self) -> None:
            self._finalize_dynamic_globals()
            self._finalized = True

        def get_pointer_to_function(self, name: str) -> int:
            """Return what Python would call."""
            return refuse or 0

        @property
        def codegen(self) -> Any:
            return self

        def set_env(self, name: str, environment: Any) -> None:
            """Leave out the Python objects that the function refers to: it has no memory for them."""
            if environment.consts:
                raise NotImplementedError(f"{name}: an inlined function refers to Python objects")

    class Compiler(compiler.Compiler):
        def define_pipelines(self) -> Any:
            self.state.library = Library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
            return super().define_pipelines()

    return {"no_cpython_wrapper": True, "pipeline_class": Compiler}


# -- the cache -------------------------------------------------------------------------------------

_KERNELS = re.compile(rb"\n@(kernel|inlined|allocating|compiled|intrinsic)\b")  # ten times as fast as with ^
# Folders of which all files count: kernels take their constants.
_COMPILED = ("kernels", "losses", "published", "chains")
_DIGEST = 32  # bytes of SHA-256
_SAID = "said-compiling"  # file that is touched when a process says that it compiles


@functools.cache
def source_digest(folder: Path) -> str:
    """Hash this file, and every file below `folder` with compiled functions, or what they take.

    Numba itself compares only the file of a function, and would load code with a stale callee inlined from
    another file.
    """
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(folder.rglob("*.py"))]:
        text = path.read_bytes()
        compiled = path.parent.name in _COMPILED or b"(NamedTuple)" in text or _KERNELS.search(text)
        if path == Path(__file__) or compiled:
            digest.update(text)
    return digest.hexdigest()


def _keep(dispatcher: Any, function: Callable) -> None:
    """Give a dispatcher its cache, or warn that there is none."""
    package = sys.modules[function.__module__.partition(".")[0]]
    if not hasattr(package, "__path__"):
        return  # a script, whose callees would not be covered by the digest of a folder
    try:
        folder = Path(package.__path__[0])
        if not hasattr(dispatcher, "_cache"):
            raise AttributeError("this version of Numba keeps it elsewhere")
        dispatcher._cache = _cache_class()(function, source_digest(folder))
    except RuntimeError:  # of Numba, which found no folder
        where = "neither the package's folder nor a home folder can be written to"
        _warn_of_cache(f"{_NOT_KEPT}: {where}; set NUMBA_CACHE_DIR to a folder that can")
    except Exception as error:  # a Numba of other private names
        _warn_of_cache(f"{_NOT_KEPT}: {error}")  # which is said instead of `COMPILING`


_warned: list[str] = []


def _warn_of_cache(what: str) -> None:
    """Warn once a process, not for each kernel."""
    if not _warned:
        _warned.append(what)
        warnings.warn(what, StreamsvmWarning, stacklevel=2)


_NOT_KEPT = "compiled code cannot be kept, so each start compiles for some seconds"


def _names(function: Callable) -> tuple[str, ...]:
    """Return the full name of a function, and what its free variables are."""

    def describe(value: Any) -> str:
        value = getattr(value, "py_func", value)  # of a compiled function
        if isinstance(value, int | float):
            return repr(value)
        return f"{value.__module__}.{value.__qualname__}"  # AttributeError: no value that has a name

    return describe(function), *(describe(cell.cell_contents) for cell in function.__closure__ or ())


@functools.cache
def _cache_class() -> Any:
    """Make our class of caches, derived from Numba's."""
    from numba.core import caching
    from numba.core.runtime import rtsys

    numba_files: Any = caching.IndexDataCacheFile
    places = caching.CompileResultCacheImpl._locator_classes
    in_home: Any = next(each for each in places if each.__name__.endswith("UserWideCacheLocator"))
    for name in ("_load_index", "_load_data", "_save_data", "_dump", "_data_path", "_open_for_write"):
        getattr(numba_files, name)  # raises if it is not the class that is extended here
    for name in ("_index_key", "_load_overload"):
        getattr(caching.FunctionCache, name)

    class Home(in_home):
        """In the home folder, if there is one: otherwise Numba would make a folder ~ in the current one."""

        def ensure_cache_path(self) -> None:
            if not os.path.isabs(self.get_cache_path()):
                raise FileNotFoundError("no home folder")
            super().ensure_cache_path()

    class Impl(caching.CompileResultCacheImpl):
        _locator_classes = [Home if each is in_home else each for each in places]  # noqa: RUF012

    class Files(numba_files):
        """Entries that contain a checksum and their key: damaged or foreign ones are compiled again.

        A power cut can leave a file truncated or full of zeros. The checksum is compared before an entry is
        unpickled, and before LLVM, which may end the process, reads it. An entry also contains the digest of
        its sources and its types, because two processes that compile at the same time may mix up their files.
        """

        target_context: Any = None  # to load for

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
            if b"NRT_" in content:  # names of Numba's functions for memory, which it compiles in each process
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
        """The cache of one function, with keys that are the same in every process.

        Numba's own keys contain a pickle of the free variables, which for compiled functions differs from
        process to process. Ours name them: the digest of the sources says what the names stand for.
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
            # Numba would first import, and register, all that it can compile. Only what was compiled already
            # is loaded here, which needs no more than the functions that machine code calls.
            files: Any = self._cache_file
            files.target_context = target_context
            found = None
            with contextlib.suppress(Exception):  # undamaged, but unreadable, or not what this Numba takes
                found = self._load_overload(sig, target_context)
            if found is None:  # Numba compiles it next
                tell_of_compiling(Path(Impl(kernel).locator.get_cache_path(), _SAID))
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except OSError as error:  # a full disk: the code is in memory all the same
                _warn_of_cache(f"{_NOT_KEPT}: {error}")

    return Cache
