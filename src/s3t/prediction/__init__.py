"""Prediction: members, their ensemble, its answers and metrics."""
