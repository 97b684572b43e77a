"""Python reads this file first in every process of a test, since its folder is in their PYTHONPATH.

A process that imports TensorFlow and Keras spends half of its start on what no test looks at. Without pandas and
scikit-learn, which Keras imports where they are installed, and without a garbage collection every 700 objects, `import
keras` takes 4.4 s of processor time in place of 8.3 s. The suite starts some 500 such processes.
"""

import gc
import sys

gc.set_threshold(100_000)
for name in ("pandas", "sklearn"):
    sys.modules[name] = None  # importing it raises ImportError
