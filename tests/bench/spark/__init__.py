"""What reading vmq's streams costs in Spark."""
