"""Training on several cores or machines.

The number and kind of splits are settings of a run, but the number of workers is not. The model of a run with
S splits has the same bytes for any number of workers.
"""
