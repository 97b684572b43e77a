"""Snapshots of training: what they hold, where they are kept, and a fit that goes on from one."""
