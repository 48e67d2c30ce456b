"""Crammer-Singer by sorting: Blondel et al. (2014), Algorithm 2; d and θ are as in `largest_slacks`."""

from __future__ import annotations

from streamsvm.kernels.jit import allocating, inlined, kernel
from streamsvm.kernels.sorting import sorted_falling
from streamsvm.losses.crammer_singer import make, make_squared
from streamsvm.losses.largest_slacks import least_theta
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton


@kernel
def polished(d, m, most, slope, u_top, theta):
    """Find θ without the rounding error of a long sum: usually one Newton step."""
    low = least_theta(most, slope, u_top)
    return threshold_newton(d, m, UNBOUNDED, most, slope, u_top, low, 0.0, theta)


@allocating
def threshold_sorted(d, m, most, slope, u_top):
    """Find θ by sorting: Blondel et al. (2014), Algorithm 2, the projection to a simplex.

    The paper's simplex {b >= 0, Σ b = C} includes class y, which has the rest of C. Without it no digits are
    lost: Σ b = slope (u_top + θ), and only if that is more than C, b is the projection of d to the simplex of
    the wrong classes.

    Parameters
    ----------
    d : ndarray of float64, shape (m + 8,) or larger
        u_j minus the largest of them in the first `m` >= 1 entries; the eight entries after them are
        overwritten.
    most : float
        Upper bound of the sum, positive.
    slope : float
        1 in the paper.
    u_top : float
        The largest u_j, positive.
    """
    falling = sorted_falling(d, m)
    total, n_free = 0.0, 0  # of the entries with b_j > 0
    theta = -u_top
    while n_free < m and falling[n_free] > theta:
        total += falling[n_free]
        n_free += 1
        theta = (total - slope * u_top) / (n_free + slope)
    if slope * (u_top + theta) > most:
        total, n_free = 0.0, 0
        theta = -most
        while n_free < m and falling[n_free] > theta:
            total += falling[n_free]
            n_free += 1
            theta = (total - most) / n_free
    return polished(d, m, most, slope, u_top, theta)


@inlined
def _find_sorted(d, m, upper, most, slope, u_top, dual, problem):
    return threshold_sorted(d, m, most, slope, u_top)


KERNELS = {
    ("cs", "sorted"): make("cs_sorted", _find_sorted),
    ("cs2", "sorted"): make_squared("cs2_sorted", _find_sorted),
}
