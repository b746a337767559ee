"""kerasish: Keras 3's API on two engines of its own. The public names, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import backends as backends
from kerasish.autodiff import GradientTape as GradientTape
from kerasish.autodiff import custom_gradient as custom_gradient
from kerasish.autodiff import grad as grad
from kerasish.autodiff import hessian as hessian
from kerasish.autodiff import jacobian as jacobian
from kerasish.autodiff import value_and_grad as value_and_grad
from kerasish.autodiff import vmap as vmap
from kerasish.devices import device as device
from kerasish.dtype_policies import DTypePolicy as DTypePolicy
from kerasish.dtype_policies import FloatDTypePolicy as FloatDTypePolicy
from kerasish.first_use import imports_on_first_use as _imports_on_first_use
from kerasish.tensor import Tensor as Tensor
from kerasish.tensor import Variable as Variable
from kerasish.tensor import name_scope as name_scope
from kerasish.tensor import no_gradient as no_gradient
from kerasish.unsupported import explain as _explain

__version__ = "0.1.0"

# What computing with tensors does not need, and modules.
with _imports_on_first_use(__name__, _explain(__name__)) as _PLACES:
    from kerasish import activations as activations
    from kerasish import applications as applications
    from kerasish import autodiff as autodiff
    from kerasish import backend as backend
    from kerasish import callbacks as callbacks
    from kerasish import config as config
    from kerasish import constraints as constraints
    from kerasish import data as data
    from kerasish import datasets as datasets
    from kerasish import diagrams as diagrams
    from kerasish import distribution as distribution
    from kerasish import dtype_policies as dtype_policies
    from kerasish import engine as engine
    from kerasish import errors as errors
    from kerasish import estimator as estimator
    from kerasish import export as export
    from kerasish import fold as fold
    from kerasish import graph as graph
    from kerasish import initializers as initializers
    from kerasish import layers as layers
    from kerasish import losses as losses
    from kerasish import media as media
    from kerasish import metrics as metrics
    from kerasish import mixed_precision as mixed_precision
    from kerasish import models as models
    from kerasish import ops as ops
    from kerasish import optimizers as optimizers
    from kerasish import preprocessing as preprocessing
    from kerasish import quantizers as quantizers
    from kerasish import random as random
    from kerasish import recomputing as recomputing
    from kerasish import regularizers as regularizers
    from kerasish import saving as saving
    from kerasish import tables as tables
    from kerasish import testing as testing
    from kerasish import tree as tree
    from kerasish import typing as typing
    from kerasish import utils as utils
    from kerasish import visualization as visualization
    from kerasish import wrappers as wrappers
    from kerasish.engine import Function as Function
    from kerasish.engine import Input as Input
    from kerasish.engine import InputSpec as InputSpec
    from kerasish.engine import KerasTensor as KerasTensor
    from kerasish.engine import Layer as Layer
    from kerasish.engine import Model as Model
    from kerasish.engine import Operation as Operation
    from kerasish.engine import Sequential as Sequential
    from kerasish.engine import StatelessScope as StatelessScope
    from kerasish.engine import SymbolicScope as SymbolicScope
    from kerasish.engine.function import function as function
    from kerasish.engine.layer.defaults import defaults as defaults
    from kerasish.engine.layer.remat import RematScope as RematScope
    from kerasish.engine.layer.remat import remat as remat
    from kerasish.initializers import Initializer as Initializer
    from kerasish.losses.loss import Loss as Loss
    from kerasish.metrics.metric import Metric as Metric
    from kerasish.optimizers import Optimizer as Optimizer
    from kerasish.quantizers import Quantizer as Quantizer
    from kerasish.regularizers import Regularizer as Regularizer

# Modules that users seldom name: `dir(kerasish)` leaves them out.
_SELDOM = {
    "diagrams", "engine", "estimator", "fold", "graph", "media", "quantizers", "recomputing",
    "tables",
}  # fmt: skip
_NOT_BY_STAR = ("applications", "distribution", "testing", "visualization", "wrappers")

if not TYPE_CHECKING:
    _find = globals()["__getattr__"]

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return [n for n in __dir__() if n[0] != "_" and n not in _NOT_BY_STAR]
        return _find(name)


def __dir__() -> list[str]:
    """Return the public names, and those that every module has."""
    own = {
        name
        for name, value in list(globals().items())
        if name[:2] == "__"
        or (name[0] != "_" and getattr(value, "__module__", "").startswith(__name__))
    }
    return sorted(own | _PLACES.keys() - _SELDOM)


def version() -> str:
    """Return the version of kerasish.

    Example:
        >>> isinstance(version(), str)
        True
    """
    return __version__
