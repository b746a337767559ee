"""Tensors and variables, what converts to them, and what is recorded of them."""

from kerasish.scopes import Scope as Scope
from kerasish.scopes import autocast as autocast
from kerasish.scopes import current_path as current_path
from kerasish.scopes import current_scope as current_scope
from kerasish.scopes import name_scope as name_scope
from kerasish.scopes import using_scope as using_scope
from kerasish.tensor.arguments import finish as finish
from kerasish.tensor.arguments import prepare as prepare
from kerasish.tensor.arguments import record as record
from kerasish.tensor.arguments import unshared as unshared
from kerasish.tensor.scope import VariableScope as VariableScope
from kerasish.tensor.sparse import SparseTensor as SparseTensor
from kerasish.tensor.tensor import Key as Key
from kerasish.tensor.tensor import Record as Record
from kerasish.tensor.tensor import Tensor as Tensor
from kerasish.tensor.tensor import _serials as _serials
from kerasish.tensor.tensor import concrete as concrete
from kerasish.tensor.tensor import convert as convert
from kerasish.tensor.tensor import is_traced as is_traced
from kerasish.tensor.tensor import no_gradient as no_gradient
from kerasish.tensor.tensor import recording as recording
from kerasish.tensor.tensor import scalar as scalar
from kerasish.tensor.tensor import to_numpy as to_numpy
from kerasish.tensor.tensor import wrap as wrap
from kerasish.tensor.variable import Variable as Variable
