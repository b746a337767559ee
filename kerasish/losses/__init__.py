"""Losses: classes, functions, and the names that they go by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kerasish import registry
from kerasish.identifiers import deserialize_of, get_by_name
from kerasish.losses.alignment import CTC as CTC
from kerasish.losses.alignment import ctc as ctc
from kerasish.losses.embedding import Circle as Circle
from kerasish.losses.embedding import circle as circle
from kerasish.losses.focal import BinaryFocalCrossentropy as BinaryFocalCrossentropy
from kerasish.losses.focal import CategoricalFocalCrossentropy as CategoricalFocalCrossentropy
from kerasish.losses.focal import binary_focal_crossentropy as binary_focal_crossentropy
from kerasish.losses.focal import categorical_focal_crossentropy as categorical_focal_crossentropy
from kerasish.losses.loss import Loss as Loss
from kerasish.losses.loss import LossFunction as LossFunction
from kerasish.losses.margin import CategoricalHinge as CategoricalHinge
from kerasish.losses.margin import Hinge as Hinge
from kerasish.losses.margin import SquaredHinge as SquaredHinge
from kerasish.losses.margin import categorical_hinge as categorical_hinge
from kerasish.losses.margin import hinge as hinge
from kerasish.losses.margin import squared_hinge as squared_hinge
from kerasish.losses.overlap import Dice as Dice
from kerasish.losses.overlap import Tversky as Tversky
from kerasish.losses.overlap import dice as dice
from kerasish.losses.overlap import tversky as tversky
from kerasish.losses.probabilistic import BinaryCrossentropy as BinaryCrossentropy
from kerasish.losses.probabilistic import CategoricalCrossentropy as CategoricalCrossentropy
from kerasish.losses.probabilistic import (
    CategoricalGeneralizedCrossEntropy as CategoricalGeneralizedCrossEntropy,
)
from kerasish.losses.probabilistic import KLDivergence as KLDivergence
from kerasish.losses.probabilistic import Poisson as Poisson
from kerasish.losses.probabilistic import (
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
)
from kerasish.losses.probabilistic import binary_crossentropy as binary_crossentropy
from kerasish.losses.probabilistic import categorical_crossentropy as categorical_crossentropy
from kerasish.losses.probabilistic import (
    categorical_generalized_cross_entropy as categorical_generalized_cross_entropy,
)
from kerasish.losses.probabilistic import kl_divergence as kl_divergence
from kerasish.losses.probabilistic import poisson as poisson
from kerasish.losses.probabilistic import (
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from kerasish.losses.regression import CosineSimilarity as CosineSimilarity
from kerasish.losses.regression import Huber as Huber
from kerasish.losses.regression import LogCosh as LogCosh
from kerasish.losses.regression import MeanAbsoluteError as MeanAbsoluteError
from kerasish.losses.regression import MeanAbsolutePercentageError as MeanAbsolutePercentageError
from kerasish.losses.regression import MeanSquaredError as MeanSquaredError
from kerasish.losses.regression import MeanSquaredLogarithmicError as MeanSquaredLogarithmicError
from kerasish.losses.regression import cosine_similarity as cosine_similarity
from kerasish.losses.regression import huber as huber
from kerasish.losses.regression import log_cosh as log_cosh
from kerasish.losses.regression import mean_absolute_error as mean_absolute_error
from kerasish.losses.regression import (
    mean_absolute_percentage_error as mean_absolute_percentage_error,
)
from kerasish.losses.regression import mean_squared_error as mean_squared_error
from kerasish.losses.regression import (
    mean_squared_logarithmic_error as mean_squared_logarithmic_error,
)
from kerasish.losses.sampled import candidates as candidates
from kerasish.losses.sampled import sampled_softmax as sampled_softmax
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config, LossLike, Structure

_NO_LOSSES = ("candidates", "sampled_softmax")  # functions with other arguments
_SHORT = {
    "bce": binary_crossentropy,
    "kld": kl_divergence,
    "mae": mean_absolute_error,
    "mape": mean_absolute_percentage_error,
    "mse": mean_squared_error,
    "msle": mean_squared_logarithmic_error,
}

registry.add_builtins(
    "keras.losses",
    {
        **{n: x for n, x in registry.own_objects(__name__).items() if n not in _NO_LOSSES},
        **_SHORT,
        **{name.upper(): f for name, f in _SHORT.items()},
    },
)


def serialize(loss: LossLike) -> dict[str, Any]:
    """Return a loss as what JSON can hold.

    Args:
        loss: a loss.

    Example:
        >>> from kerasish import losses
        >>> losses.serialize(losses.MeanSquaredError())["class_name"]
        'MeanSquaredError'
    """
    return registry.serialize_keras_object(loss)


@hides_frames
def deserialize(name: Config | str, custom_objects: Mapping[str, Any] | None = None) -> Structure:
    """Return the loss for a name or for what `serialize` returned.

    Args:
        name: name of the loss; None: made from the class.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> from kerasish import losses
        >>> losses.deserialize("mse").__name__
        'mean_squared_error'
    """
    return deserialize_of(name, "keras.losses", "loss", custom_objects)


@hides_frames
def get(identifier: LossLike | None) -> Structure:
    """Return the loss for a name, config, class or function; None for None.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Raises:
        UnknownNameError: the name is not known; the message lists the nearest ones.

    Example:
        >>> get("mse").__name__, get("Huber").name
        ('mean_squared_error', 'huber_loss')
    """
    return get_by_name(identifier, "keras.losses", "loss")
