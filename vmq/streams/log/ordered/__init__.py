"""The rows of sealed segments once more, ordered by topic, for readers of few topics."""
