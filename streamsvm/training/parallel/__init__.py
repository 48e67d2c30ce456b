"""Training on several cores or machines.

The number and kind of splits are settings, which affect the model. The number of workers does not affect it.
"""
