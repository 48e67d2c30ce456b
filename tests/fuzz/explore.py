"""Look for inputs that break a target, guided by coverage: `python tests/fuzz/explore.py --help`.

Needs `pip install -e '.[test,fuzz]'`. What it finds is written to the folder given by --findings; a file
of its kind, made small, belongs into `tests/fuzz/corpus/TARGET`, which the tests replay. Options that it
does not know go to libFuzzer: with `-merge=1 FOLDER` that collects a smallest set of what was discovered.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import atheris

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "streamsvm"
# Compiled code, and what it is compiled from: instrumented, Numba would not take it.
COMPILED = [
    *(
        f"streamsvm.{name}"
        for name in ("run.weights", "run.segments", "run.duals", "run.sparse_weights", "transforms.hashing")
    ),
    *(
        f"streamsvm.{folder}.{path.stem}"
        for folder in ("kernels", "losses")
        for path in sorted((PACKAGE / folder).glob("*.py"))
    ),
    *(f"streamsvm_converters.libsvm.{name}" for name in ("byte_vectors", "numbers", "lines", "rows")),
    "streamsvm_converters.waiting_rows",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py")))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--work", type=Path, required=True, help="folder for what was discovered; kept")
    parser.add_argument("--findings", type=Path, required=True, help="folder for inputs that break")
    arguments, options = parser.parse_known_args()
    sys.path.insert(0, str(HERE.parent))
    watched = ["streamsvm", "streamsvm_converters", "streamsvm_cli", f"fuzz.targets.{arguments.target}"]
    with atheris.instrument_imports(include=watched, exclude=COMPILED):
        target = importlib.import_module(f"fuzz.targets.{arguments.target}")
    for name in COMPILED:
        _instrument(vars(sys.modules.get(name, sys)), name)
    run = _within_memory(target.run)
    work, findings = arguments.work / arguments.target, arguments.findings / arguments.target
    for folder in (work, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (work / f"seed-{number:03d}").write_bytes(seed)
    dictionary = work.with_suffix(".dict")
    quoted = ("".join(f"\\x{byte:02x}" for byte in token) for token in target.TOKENS)
    dictionary.write_text("".join(f'"{token}"\n' for token in quoted))
    words = [
        sys.argv[0],
        f"-max_total_time={arguments.seconds}",
        f"-artifact_prefix={findings}/",
        f"-dict={dictionary}",
        "-timeout=20",
        "-rss_limit_mb=3000",
        "-len_control=0",
        f"-max_len={getattr(target, 'MAX_BYTES', 4096)}",
        *options,
        str(work),
        *([str(HERE / "corpus" / arguments.target)] if (HERE / "corpus" / arguments.target).is_dir() else []),
    ]
    more = {}
    if hasattr(target, "mutate"):
        more["custom_mutator"] = lambda data, size, seed: target.mutate(data, size, seed, atheris.Mutate)
    atheris.Setup(words, run, **more)
    atheris.Fuzz()


def _instrument(names: dict[str, Any], module: str) -> None:
    """Watch the functions of a module that are not compiled."""
    for function in names.values():
        if inspect.isfunction(function) and function.__module__ == module:
            atheris.instrument_func(function)


def _within_memory(run: Any) -> Any:
    """The target, which breaks too if bytes make it take much more memory than those before."""
    from fuzz.replay import MOST_MEMORY, peak

    warm = 200  # executions that may load and compile

    def watched(data: bytes) -> None:
        nonlocal warm
        before = peak()
        run(data)
        warm -= 1
        assert warm > 0 or peak() - before < MOST_MEMORY, f"{peak() - before} bytes more"

    return watched


if __name__ == "__main__":
    main()
