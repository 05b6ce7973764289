"""numpy, imported without the threads of its linear algebra; cosines of stored vectors."""

import os
import sys
from collections.abc import Mapping

_THREADS = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import it, if it is not there: half of the time that it takes is starting those threads.

    Nothing that is multiplied here is large enough for them (see ragmem/vectors.py). They
    are read from the environment, which is put back: commands that are run inherit it.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_THREADS]


def cosines(row: bytes, rows: Mapping[str, bytes]) -> dict[str, float]:
    """Of a unit vector with others of its length, float32 little-endian, by their names."""
    alike = {name: other for name, other in rows.items() if len(other) == len(row)}
    if not alike:
        return {}
    load_numpy()
    import numpy as np

    matrix = np.frombuffer(b"".join(alike.values()), dtype="<f4").reshape(len(alike), -1)
    found = np.nan_to_num(matrix @ np.frombuffer(row, dtype="<f4"), nan=-1.0)
    return dict(zip(alike, map(float, found), strict=True))
