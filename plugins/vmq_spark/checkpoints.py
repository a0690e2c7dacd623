"""What a driver that was killed left half written in its checkpoints."""

from pathlib import Path

#: Logs of a query: what each batch reads, and which batches are done.
LOGS = ("offsets", "commits")


def drop_unfinished(checkpoint: Path) -> None:
    """Deletes entries that were never given their name; no driver may be running.

    Spark takes no notice of them, but for one: a query whose first entry was interrupted refuses to start for ever
    (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY).
    """
    for log in LOGS:
        for entry in checkpoint.glob(f"*/{log}/.*.tmp*"):
            entry.unlink(missing_ok=True)
