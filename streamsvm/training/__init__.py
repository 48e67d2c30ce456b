"""Training: the loop, the learner it drives, the sources it streams, and the memory plan."""
