"""What a user calls: fit, evaluate, predict, their *_on_batch and custom loops."""
