"""Jobs: work that is given to one worker, and given again until it is acknowledged."""
