"""Training: the recipe, the trainer and its checkpoints."""
