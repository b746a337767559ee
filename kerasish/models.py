"""Models: making, copying, saving and loading them."""

from kerasish.engine import Functional as Functional
from kerasish.engine import Model as Model
from kerasish.engine import Sequential as Sequential
from kerasish.engine import clone_model as clone_model
