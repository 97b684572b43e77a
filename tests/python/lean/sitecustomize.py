"""Python reads this file first in every process of a test, since its folder is in their PYTHONPATH.

A process that imports TensorFlow and Keras spends most of its life on what no test looks at. `import keras` and the exit
after it take 3.0 s of processor time in place of 8.3 s, by fewer garbage collections, without pandas and scikit-learn,
which Keras imports where they are installed, and without a search for garbage in all that was imported at the exit
(1.3 s). The suite starts some 500 such processes.
"""

import atexit
import gc
import os
import sys

gc.set_threshold(100_000)
atexit.register(gc.freeze)  # the first one registered runs last
for name in os.environ.get("TARANTELLA_TESTS_HIDE", "pandas sklearn").split():
    sys.modules[name] = None  # importing it raises ImportError
