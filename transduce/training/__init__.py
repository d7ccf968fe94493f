"""Training (§5): the loss, the schedule, the optimizer, a step and the training loop."""
