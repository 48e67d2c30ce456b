"""The settings of a training: each declared once, with its checks."""
