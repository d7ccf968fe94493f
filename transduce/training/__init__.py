"""Learning (§5): loss, schedule, optimiser, the step and the loop."""
