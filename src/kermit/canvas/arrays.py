"""The array types used by everything except the engines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
Booleans = NDArray[np.bool_]
Array = NDArray[Any]
