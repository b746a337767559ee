"""Derivatives: the reverse pass, and transforms built on it."""

from kerasish.autodiff.batching import hessian as hessian
from kerasish.autodiff.batching import jacobian as jacobian
from kerasish.autodiff.batching import vmap as vmap
from kerasish.autodiff.reverse import backward as backward
from kerasish.autodiff.reverse import gradients_of as gradients_of
from kerasish.autodiff.reverse import leaves_of as leaves_of
from kerasish.autodiff.reverse import name_of as name_of
from kerasish.autodiff.reverse import sum_to_shape as sum_to_shape
from kerasish.autodiff.reverse import walk_back as walk_back
from kerasish.autodiff.tape import GradientTape as GradientTape
from kerasish.autodiff.transforms import custom_gradient as custom_gradient
from kerasish.autodiff.transforms import grad as grad
from kerasish.autodiff.transforms import jvp as jvp
from kerasish.autodiff.transforms import value_and_grad as value_and_grad
from kerasish.autodiff.transforms import vjp as vjp
