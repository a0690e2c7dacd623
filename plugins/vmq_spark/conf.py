"""Spark's settings for a pipeline, unless its user sets them."""

from typing import Final

from vmq_spark.settings import Settings, local_path

#: Nothing listens for the network but what a cluster needs.
CONF: Final = {
    "spark.log.level": "OFF",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: Where driver and tasks are one process. Arrow checks no bounds of what pyarrow has made. Unix sockets for rows from
#: Python are left out: with them a worker that Spark stops leaves a traceback on the terminal (BrokenPipeError).
LOCAL_CONF: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true "
    "-Darrow.enable_null_check_for_get=false",
}
#: For checkpoints on a disk of this machine. Spark's own choice has other programs (readlink, chmod) run for each file,
#: several times a batch; this has fewer. Neither keeps two queries from one checkpoint: the runner's lock does.
LOCAL_CHECKPOINT_CONF: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager",
}


def conf_of(settings: Settings) -> dict[str, str]:
    """What a pipeline's session is made with; the user's own settings win."""
    is_local = settings.master.startswith("local")
    return {
        **CONF,
        "spark.sql.warehouse.dir": f"{settings.folder}/scratch/warehouse",
        **(LOCAL_CONF if is_local else {}),
        **(LOCAL_CHECKPOINT_CONF if local_path(settings.checkpoint) else {}),
        **settings.conf,
    }
