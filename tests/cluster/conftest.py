"""The small problem of the tests of training, which clusters train on, too."""

from small_problem import problem, store  # noqa: F401
