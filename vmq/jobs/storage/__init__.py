"""Jobs on disk: an append-only log of what happened to them, in segments."""
