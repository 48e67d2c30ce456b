"""The small problem that most tests of training share."""

from small_problem import problem, store  # noqa: F401
