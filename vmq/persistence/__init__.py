"""The store of a running broker: opening, restoring sessions, group commit, purging what has ended, damage."""
