"""Several broker processes on one machine that share the listening ports and are one broker to everybody else."""
