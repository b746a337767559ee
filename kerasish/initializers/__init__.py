"""First values of variables, by name: Keras's `initializers` module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kerasish.identifiers import get_by_name
from kerasish.initializers.constants import STFT as STFT
from kerasish.initializers.constants import Constant as Constant
from kerasish.initializers.constants import Identity as Identity
from kerasish.initializers.constants import Ones as Ones
from kerasish.initializers.constants import Zeros as Zeros
from kerasish.initializers.initializer import Initializer as Initializer
from kerasish.initializers.random import Orthogonal as Orthogonal
from kerasish.initializers.random import RandomNormal as RandomNormal
from kerasish.initializers.random import RandomUniform as RandomUniform
from kerasish.initializers.random import TruncatedNormal as TruncatedNormal
from kerasish.initializers.scaling import GlorotNormal as GlorotNormal
from kerasish.initializers.scaling import GlorotUniform as GlorotUniform
from kerasish.initializers.scaling import HeNormal as HeNormal
from kerasish.initializers.scaling import HeUniform as HeUniform
from kerasish.initializers.scaling import LecunNormal as LecunNormal
from kerasish.initializers.scaling import LecunUniform as LecunUniform
from kerasish.initializers.scaling import VarianceScaling as VarianceScaling
from kerasish.registry import add_builtins, own_objects, serialize_keras_object
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config, InitializerLike, Structure

IdentityInitializer = identity = Identity
OrthogonalInitializer = orthogonal = Orthogonal
STFTInitializer = stft = STFT
constant, zeros, ones = Constant, Zeros, Ones
random_normal, random_uniform, truncated_normal = RandomNormal, RandomUniform, TruncatedNormal
variance_scaling = VarianceScaling
glorot_normal, glorot_uniform = GlorotNormal, GlorotUniform
he_normal, he_uniform = HeNormal, HeUniform
lecun_normal, lecun_uniform = LecunNormal, LecunUniform

add_builtins("keras.initializers", own_objects(__name__))
add_builtins(
    "keras.initializers",
    {"zero": Zeros, "one": Ones, "normal": RandomNormal, "uniform": RandomUniform},
)


@hides_frames
def get(identifier: InitializerLike | None) -> Structure:
    """Return the initializer for a name, a config, a class, an array or a function.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Raises:
        ValueError: a name that is not known; the message lists the nearest known ones.

    Example:
        >>> get("he_normal"), get("zeros")
        (HeNormal(seed=None, input_axes=None, output_axes=None), Zeros())
    """
    if hasattr(identifier, "__array__") and not isinstance(identifier, type):
        return Constant(identifier)
    return get_by_name(identifier, "keras.initializers", "initializer")


def serialize(initializer: InitializerLike) -> dict[str, Any]:
    """Return an initializer's config, as files hold it.

    Args:
        initializer: an initializer.

    Example:
        >>> serialize(Zeros())["class_name"]
        'Zeros'
    """
    return serialize_keras_object(initializer)


@hides_frames
def deserialize(config: Config | str, custom_objects: Mapping[str, Any] | None = None) -> Structure:
    """Return the initializer that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> from kerasish import initializers
        >>> initializers.deserialize(initializers.serialize(initializers.Constant(2.0))).value
        2.0
    """
    return get_by_name(config, "keras.initializers", "initializer", custom_objects)
