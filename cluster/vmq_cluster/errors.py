"""What can go wrong, and whose fault it is."""


class ClusterError(Exception):
    """Something asked of the cluster cannot be done; the text says why."""


class MalformedError(ClusterError):
    """A peer sent what no peer sends: the fault is remote, and the link to it is dropped."""


class FormatError(MalformedError):
    """A frame of a format that this node does not read: its sender is of another version."""


class StorageError(ClusterError):
    """The storage holds what this program never wrote, or cannot be used."""


class UnwrittenError(StorageError):
    """The storage did not take what a pass wrote: that is kept, and is to be written again."""
