"""Python reads this file first in every process of a row: its folder is in their PYTHONPATH.

Keras imports pandas and scikit-learn where they are installed. No row needs them, and they would take a third of the
time of `make bench`.
"""

import sys

for name in ("pandas", "sklearn"):
    sys.modules[name] = None  # importing it raises ImportError
