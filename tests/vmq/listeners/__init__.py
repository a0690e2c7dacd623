"""Tests of the listeners."""
