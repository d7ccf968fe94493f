"""Learning (§5): loss, schedule, optimizer, the step and the loop."""
