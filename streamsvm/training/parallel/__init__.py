"""Training on several cores or machines: how the work is split, and who does it.

How a run is split is a part of its settings, who works on it is not: the model of a run with S splits has the
same bytes on one worker as on many.
"""
