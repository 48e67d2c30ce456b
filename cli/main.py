"""Entry point of `streamsvm`, which converts exceptions to exit codes."""

from __future__ import annotations

import sys  # no other import, because only `run` handles Ctrl-C


def run() -> None:
    """Run the command line. Exit codes: 0 for success, 1 for failure, 2 for wrong usage, 130 for Ctrl-C."""
    try:
        _run()
    except KeyboardInterrupt:  # during imports
        print("streamsvm: interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        import gc

        gc.freeze()  # otherwise the interpreter collects garbage in all modules at exit


def _run() -> None:
    import faulthandler
    import gc
    import signal

    gc.set_threshold(200_000)  # imports create nearly as many objects, but no garbage

    from streamsvm_cli import commands
    from streamsvm_cli.console import complain, fail
    from streamsvm_cli.memory import return_freed_memory

    from streamsvm.errors import StreamsvmError

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Python then removes temporary files
    return_freed_memory()
    commands.warn_on_one_line()
    if sys.__stderr__ is not None:  # traceback if a memory-mapped file is truncated or its disk is full
        faulthandler.enable(sys.__stderr__)
    try:
        commands.app()
    except StreamsvmError as error:
        fail(error)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        from streamsvm.base.durable import reason

        complain(f"{error.filename or 'output'}: {reason(error)}")
        sys.exit(1)
    except MemoryError:
        complain("out of memory; set a smaller --memory")
        sys.exit(1)


if __name__ == "__main__":
    run()
