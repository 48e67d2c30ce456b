"""Run the command line: ``python -m streamsvm``."""

from streamsvm_cli.main import run

if __name__ == "__main__":
    run()
