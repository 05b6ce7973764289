"""numpy, imported without the threads of its linear algebra."""

import os
import sys

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import it, if it is not there: half of the time that it takes is starting those threads.

    Nothing that is multiplied here is large enough for them (see ragmem/store/vectors.py). They
    are read from the environment, which is put back: commands that are run inherit it.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_THREADS]
