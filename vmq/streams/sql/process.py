"""The process of one query, from its start on: `python -m vmq.streams.sql.process`."""

import gc


def main() -> None:
    """Loads what a query needs, and serves it."""
    # What libraries load stays: looking for garbage meanwhile is a tenth of the CPU that loading takes.
    gc.disable()
    from vmq.streams.sql import engine

    gc.freeze()
    gc.enable()
    engine.main()


if __name__ == "__main__":
    main()
