"""Training on several cores or machines.

The number and kind of splits are settings of a run. The number of workers changes no byte of its model.
"""
