"""Keras's `backend` module: settings of the process and questions about dtypes and names.

The functions of Keras 2 (`backend.mean`, `backend.int_shape`, ...) are found here too; they come
from `kerasish.legacy`.
"""

from typing import Any

from kerasish import legacy
from kerasish.config import backend as backend
from kerasish.config import epsilon as epsilon
from kerasish.config import floatx as floatx
from kerasish.config import image_data_format as image_data_format
from kerasish.config import set_epsilon as set_epsilon
from kerasish.config import set_floatx as set_floatx
from kerasish.config import set_image_data_format as set_image_data_format
from kerasish.engine import is_keras_tensor as is_keras_tensor
from kerasish.ops import dtypes
from kerasish.ops.dtypes import result_type as result_type
from kerasish.tensor import name_scope as name_scope
from kerasish.utils.names import get_uid as get_uid
from kerasish.utils.names import standardize_dtype as standardize_dtype
from kerasish.utils.session import clear_session as clear_session


def is_float_dtype(dtype: object) -> bool:
    """Return whether a dtype is floating.

    Example:
        >>> is_float_dtype("bfloat16"), is_float_dtype("int8")
        (True, False)
    """
    return dtypes.is_float(dtypes.name_of(dtype))


def is_int_dtype(dtype: object) -> bool:
    """Return whether a dtype is an integer one, signed or not.

    Example:
        >>> is_int_dtype("uint8"), is_int_dtype("bool")
        (True, False)
    """
    return dtypes.is_integer(dtypes.name_of(dtype))


def __getattr__(name: str) -> Any:
    if name not in legacy.FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return legacy.FUNCTIONS[name]
