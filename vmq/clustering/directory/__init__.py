"""Which node has which session, subscription and retained message: replicated records."""
