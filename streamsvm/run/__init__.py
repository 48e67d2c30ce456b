"""Run directory: duals, commits and recovery, so that training can resume after a kill at any time."""
