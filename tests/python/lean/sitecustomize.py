"""Python reads this file first in every process of a test, since its folder is in their PYTHONPATH.

A process that imports TensorFlow and Keras spends most of its life on what no test looks at. More than half of the
processor time of `import keras` and the exit after it is saved here: fewer garbage collections, none in all that was
imported at the exit, and none of the packages that both import only where they are installed.
"""

import atexit
import gc
import os
import sys

HIDDEN = set(os.environ.get("TARANTELLA_TESTS_HIDE", "matplotlib pandas scipy sklearn").split())


class HiddenFromFrameworks:
    """Keras and TensorFlow do not find these packages. A test that imports one itself does."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in HIDDEN:
            frame = sys._getframe(1)
            while frame.f_globals["__name__"].startswith("importlib."):
                frame = frame.f_back
            if frame.f_globals["__name__"].startswith(("keras.", "tensorflow.")):
                raise ModuleNotFoundError(f"{name} is hidden: see {__file__}", name=name)


gc.set_threshold(1_000_000)
atexit.register(gc.freeze)  # the first one registered runs last
sys.meta_path.insert(0, HiddenFromFrameworks)

if "TARANTELLA_TESTS_SERVER" in os.environ:
    import importlib.util

    file, _, descriptor = os.environ.pop("TARANTELLA_TESTS_SERVER").rpartition(":")
    specification = importlib.util.spec_from_file_location("tarantella_tests_server", file)
    server = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(server)
    server.serve(int(descriptor))
