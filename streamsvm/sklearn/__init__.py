"""Estimator for scikit-learn."""

from streamsvm.sklearn.estimator import StreamSVMClassifier

__all__ = ["StreamSVMClassifier"]
