"""Python reads this file first in every process of a test, since its folder is in their PYTHONPATH.

A process that imports TensorFlow and Keras spends most of its life on what no test looks at. Half of the processor time
of `import keras` and the exit after it (2.2 s in place of 4.3 s) is saved here: fewer garbage collections, none in all
that was imported at the exit, and no pandas and scikit-learn, which Keras imports where they are installed. The suite
starts some 500 such processes.
"""

import atexit
import gc
import os
import sys

gc.set_threshold(1_000_000)
atexit.register(gc.freeze)  # the first one registered runs last
for name in os.environ.get("TARANTELLA_TESTS_HIDE", "pandas sklearn").split():
    sys.modules[name] = None  # importing it raises ImportError
