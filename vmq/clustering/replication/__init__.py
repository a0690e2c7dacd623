"""Followers' copies of durable sessions: leader, follower, catch-up, failover, reconciliation."""
