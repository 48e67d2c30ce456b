"""Block solvers of the papers, to compare with: kernels of their own, by loss and name of the solver."""
