"""Training on several cores or machines.

The number and kind of splits are settings of a run, its workers are not: the model of a run with S splits has
the same bytes on one worker as on many.
"""
