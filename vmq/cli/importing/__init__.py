"""`vmq config import`: the configurations of other brokers."""
