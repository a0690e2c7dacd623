"""The replicated map: entries and their versions, anti-entropy exchange, collection of what was deleted."""
