"""Jobs for clients of MQTT: what they publish, and workers."""
