"""Segments on disk: partitions, index, recovery, retention, merging, cursors. Knows no broker and no network."""
