"""Linear SVM classifier with the interface of scikit-learn."""

from streamsvm.sklearn.estimator import StreamSVMClassifier

__all__ = ["StreamSVMClassifier"]
