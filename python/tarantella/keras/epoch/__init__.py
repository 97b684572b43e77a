"""What happens when an epoch or evaluation ends and the ranks meet."""
