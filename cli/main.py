"""Assembles the commands; the entry point of `streamsvm`."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Annotated

import typer
from streamsvm_cli import bus_error, convert, demo, evaluate, fit, info, online, predict, resume

app = typer.Typer(
    name="streamsvm",
    help="Linear multi-class SVMs on data larger than memory, exactly, in a few passes over the disk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (convert, info, fit, online, resume, predict, evaluate, demo):
    app.command()(getattr(module, module.__name__.rpartition(".")[2]))


def _version(wanted: bool) -> None:
    if wanted:
        from streamsvm import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of glibc's mallopt


def _give_memory_back() -> None:
    """Have arrays of a megabyte and more leave this process when they are freed.

    By default glibc keeps up to 32 MB of each in heaps, which come apart: a fit with --memory 100M took
    209 MB and more, and 140 like this.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**20)


def run() -> None:
    """Run the command line: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    from streamsvm.errors import Interrupted, SettingsError, StreamsvmError

    _give_memory_back()
    bus_error.end_with_a_line()
    try:
        app()
    except StreamsvmError as error:
        print(f"streamsvm: {error}", file=sys.stderr)
        sys.exit(130 if isinstance(error, Interrupted) else 2 if isinstance(error, SettingsError) else 1)
    except SystemExit as ended:
        if ended.code == 130:  # Typer has turned KeyboardInterrupt into this, without a word
            print("streamsvm: interrupted", file=sys.stderr)
        raise
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        from streamsvm.files import reason

        print(f"streamsvm: {error.filename or 'output'}: {reason(error)}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("streamsvm: out of memory; give a smaller --memory", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run()
