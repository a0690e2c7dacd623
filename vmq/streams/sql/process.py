"""The process of one query, from its start on: `python -m vmq.streams.sql.process`."""

import gc


def main() -> None:
    """Loads what a query needs, and serves it."""
    # Looking for garbage is a tenth of the time that it takes to load libraries: all of it stays.
    gc.disable()
    from vmq.streams.sql import engine

    gc.freeze()
    gc.enable()
    engine.main()


if __name__ == "__main__":
    main()
