"""Objectives: order priors, which tokens are dropped from texts, and the resulting training targets. NumPy only."""

from kermit.objectives.generations import GenerationObjective
from kermit.objectives.objective import KeptSampling, LowerBoundObjective, Objective, SlotObjective, SlotShare
from kermit.objectives.orders import BalancedTreePrior, LeftToRightPrior, OrderPrior, UniformPrior
from kermit.objectives.training_canvases import Texts, TrainingCanvases

__all__ = [
    "BalancedTreePrior",
    "GenerationObjective",
    "KeptSampling",
    "LeftToRightPrior",
    "LowerBoundObjective",
    "Objective",
    "OrderPrior",
    "SlotObjective",
    "SlotShare",
    "Texts",
    "TrainingCanvases",
    "UniformPrior",
]
