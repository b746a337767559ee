"""Models: making, copying, saving and loading them."""

from kerasish.engine import Functional as Functional
from kerasish.engine import Model as Model
from kerasish.engine import Sequential as Sequential
from kerasish.engine import clone_model as clone_model
from kerasish.saving import load_model as load_model
from kerasish.saving import model_from_json as model_from_json
from kerasish.saving import save_model as save_model
