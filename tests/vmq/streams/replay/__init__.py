"""Tests of the replays of history over MQTT."""
