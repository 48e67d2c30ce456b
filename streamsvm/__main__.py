"""``python -m streamsvm``: the command line."""

from streamsvm_cli.main import run

if __name__ == "__main__":
    run()
