"""This broker as a node of a cluster: what it makes of `vmq_cluster`, which knows nothing of MQTT."""
