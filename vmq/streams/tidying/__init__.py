"""What is done with sealed segments, beside writing and reading: retention, compaction."""
