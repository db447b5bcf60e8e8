"""Objectives: order priors, which tokens are dropped from texts, and the resulting training targets. NumPy only."""
