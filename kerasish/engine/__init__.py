"""Layers, models, the pure step and the loops around it."""

from kerasish.engine.functional.functional import Function as Function
from kerasish.engine.functional.input_layer import Input as Input
from kerasish.engine.functional.input_layer import InputLayer as InputLayer
from kerasish.engine.layer.input_spec import InputSpec as InputSpec
from kerasish.engine.layer.layer import Layer as Layer
from kerasish.engine.layer.operation import KerasTensor as KerasTensor
from kerasish.engine.layer.operation import Operation as Operation
from kerasish.engine.layer.operation import is_keras_tensor as is_keras_tensor
from kerasish.engine.layer.stateless import StatelessScope as StatelessScope
from kerasish.engine.layer.stateless import SymbolicScope as SymbolicScope
from kerasish.engine.layer.tensorflow_graph import TensorFlowValue as TensorFlowValue
from kerasish.engine.model.cloning import clone_model as clone_model
from kerasish.engine.model.model import Functional as Functional
from kerasish.engine.model.model import Model as Model
from kerasish.engine.model.sequential import Sequential as Sequential
