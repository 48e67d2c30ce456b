"""Prediction, evaluation and calibration on data of any size."""
