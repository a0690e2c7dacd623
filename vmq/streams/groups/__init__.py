"""Consumer groups: members share the partitions of a stream, and their acknowledgements move one cursor for all."""
