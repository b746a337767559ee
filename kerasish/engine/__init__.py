"""Layers, models, the pure step and the loops around it."""

from kerasish.engine.functional import Function as Function
from kerasish.engine.functional import Input as Input
from kerasish.engine.functional import InputLayer as InputLayer
from kerasish.engine.input_spec import InputSpec as InputSpec
from kerasish.engine.layer import Layer as Layer
from kerasish.engine.model import Functional as Functional
from kerasish.engine.model import Model as Model
from kerasish.engine.model import clone_model as clone_model
from kerasish.engine.operation import KerasTensor as KerasTensor
from kerasish.engine.operation import Operation as Operation
from kerasish.engine.operation import is_keras_tensor as is_keras_tensor
from kerasish.engine.sequential import Sequential as Sequential
from kerasish.engine.stateless import StatelessScope as StatelessScope
