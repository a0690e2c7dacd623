"""`vmq start`: the process of a broker, its workers, its log."""
