"""`python -m vmq`: the same as the `vmq` command."""

from vmq.cli.main import run

if __name__ == "__main__":
    run()
