"""The small problem of the tests of training."""

from small_problem import problem, store  # noqa: F401
