"""This process in its job: where it is, how it joins and ends, and what it says."""
