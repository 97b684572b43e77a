"""Snapshots of training: their content, their storage, and a fit that resumes from one."""
