"""Micro-benchmarks; they say how long things take and judge nothing."""
