"""Training: the recipe, the families of models it can name, the trainer and its checkpoints."""
