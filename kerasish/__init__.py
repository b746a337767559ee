"""kerasish: Keras 3's API on two engines of its own. The public names, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerasish import backends as backends
from kerasish import config as config
from kerasish import dtype_policies as dtype_policies
from kerasish import ops as ops
from kerasish import random as random
from kerasish import tree as tree
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
from kerasish.first_use import import_on_first_use as _on_first_use
from kerasish.tensor import Tensor as Tensor
from kerasish.tensor import Variable as Variable
from kerasish.tensor import name_scope as name_scope
from kerasish.tensor import no_gradient as no_gradient
from kerasish.unsupported import explain as _explain

__version__ = "0.1.0"

# What computing with tensors does not need, and modules that import a heavy package.
if TYPE_CHECKING:
    from kerasish import activations as activations
    from kerasish import applications as applications
    from kerasish import backend as backend
    from kerasish import callbacks as callbacks
    from kerasish import constraints as constraints
    from kerasish import data as data
    from kerasish import datasets as datasets
    from kerasish import distribution as distribution
    from kerasish import engine as engine
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
    from kerasish import optimizers as optimizers
    from kerasish import preprocessing as preprocessing
    from kerasish import quantizers as quantizers
    from kerasish import regularizers as regularizers
    from kerasish import saving as saving
    from kerasish import testing as testing
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

_ON_FIRST_USE: dict[str, tuple[str, ...]] = {
    "engine": (
        "Function", "Input", "InputSpec", "KerasTensor", "Layer", "Model", "Operation",
        "Sequential", "StatelessScope", "SymbolicScope",
    ),
    "engine.function": ("function",),
    "engine.layer.defaults": ("defaults",),
    "engine.layer.remat": ("RematScope", "remat"),
    "initializers": ("Initializer",),
    "losses.loss": ("Loss",),
    "metrics.metric": ("Metric",),
    "optimizers": ("Optimizer",),
    "quantizers": ("Quantizer",),
    "regularizers": ("Regularizer",),
}  # fmt: skip
# The modules that users name, and further ones that have always been there.
_MODULES = (
    "activations", "applications", "autodiff", "backend", "callbacks", "config", "constraints",
    "data", "datasets", "distribution", "dtype_policies", "errors", "export", "initializers",
    "layers", "losses", "metrics", "mixed_precision", "models", "ops", "optimizers",
    "preprocessing", "random", "regularizers", "saving", "testing", "tree", "typing", "utils",
    "visualization", "wrappers",
)  # fmt: skip
_OTHERS = (
    "diagrams", "engine", "estimator", "fold", "graph", "media", "quantizers", "recomputing",
    "tables",
)  # fmt: skip
_NOT_BY_STAR = ("applications", "distribution", "testing", "visualization", "wrappers")

if not TYPE_CHECKING:
    _find, _ = _on_first_use(
        __name__,
        _ON_FIRST_USE,
        _on_first_use(__name__, dict.fromkeys(_MODULES + _OTHERS, ()), _explain(__name__))[0],
    )

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return [n for n in __dir__() if n[0] != "_" and n not in _NOT_BY_STAR]
        return _find(name)


def __dir__() -> list[str]:
    """Return the public names, and those that every module has."""
    own = {
        name
        for name, value in list(globals().items())
        if name[0] != "_" and getattr(value, "__module__", "").startswith(__name__)
    }
    later = (name for names in _ON_FIRST_USE.values() for name in names)
    return sorted(own.union(later, _MODULES, (name for name in [*globals()] if name[:2] == "__")))


def version() -> str:
    """Return the version of kerasish.

    Example:
        >>> isinstance(version(), str)
        True
    """
    return __version__
