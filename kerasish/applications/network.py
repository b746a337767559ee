"""What all applications share: their arguments, input, classifier and published weights."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kerasish import activations, config
from kerasish.datasets.download import cache_root, get_file
from kerasish.engine import Functional, Input, Model, is_keras_tensor
from kerasish.errors import levels_to_user
from kerasish.layers import Dense, Dropout, GlobalAveragePooling2D, GlobalMaxPooling2D
from kerasish.typing import ActivationLike, PathLike
from kerasish.utils.names import get_source_inputs

Function = TypeVar("Function", bound=Callable[..., Any])

# The folder of most published weight files.
STORAGE = "https://storage.googleapis.com/tensorflow/keras-applications/"
IMAGENET_CLASSES = 1000

_ARGUMENTS = {
    "include_top": "whether the classifier of ImageNet's 1000 classes follows the features.",
    "weights": 'what the variables start from: None (random), "imagenet" (Keras\'s published '
    "file, downloaded once into the cache), or the path of a weights file.",
    "input_tensor": "a symbolic tensor to start from; None: a new `Input`.",
    "input_shape": "the shape of one image; None: {size}. Only without the classifier may it "
    "differ where weights are given.",
    "pooling": 'what follows the features without the classifier: None, "avg" or "max".',
    "classes": "number of classes, >= 1; 1000 with weights of ImageNet.",
    "classifier_activation": "name or function; None: the logits.",
    "include_preprocessing": "whether the model scales images of 0 to 255 itself.",
    "alpha": "factor of all widths, > 0.",
    "depth_multiplier": "results of a depth-wise convolution per channel, >= 1.",
    "dropout": "rate before the classifier, from 0 to 1.",
    "dropout_rate": "rate before the classifier, from 0 to 1.",
    "minimalistic": "whether to leave out what some accelerators do not have: squeeze and "
    "excitation, hard swish, and 5x5 kernels.",
    "name": "the model's name; None: that of the network.",
}


@dataclass(frozen=True)
class Published:
    """The published weights of a network.

    Attributes:
        url: the file with the classifier.
        url_no_top: the file without it.
        hashes: the checksums of both files (MD5 or SHA-256); None where none is published.
        names: the files' names in the cache; None: those of the URLs.
    """

    url: str
    url_no_top: str
    hashes: tuple[str | None, str | None] = (None, None)
    names: tuple[str, str] | None = None


@dataclass
class NetworkRequest:
    """The arguments that every application takes, checked."""

    include_top: bool
    weights: PathLike | None
    input_tensor: Any
    input_shape: tuple[int | None, ...] | None
    pooling: str | None
    classes: int
    classifier_activation: ActivationLike | None
    name: str

    def __post_init__(self) -> None:
        """Raise ValueError where arguments do not fit together."""
        if self.input_shape is not None:
            self.input_shape = tuple(self.input_shape)
        who, given = self.name or "application", self.weights
        if given is not None and given != "imagenet" and not os.path.exists(given):
            raise ValueError(
                f"{who}: weights is None (random), 'imagenet', or the path of a file that "
                f"exists; got {given!r}."
            )
        if self.pooling not in (None, "avg", "max"):
            raise ValueError(f"{who}: pooling is None, 'avg' or 'max', got {self.pooling!r}.")
        if given is None or not self.include_top:
            return
        if given == "imagenet" and self.classes != IMAGENET_CLASSES:
            raise ValueError(
                f"{who}: the ImageNet weights have a classifier of 1000 classes, got "
                f"classes={self.classes}; pass classes=1000, include_top=False or weights=None."
            )
        if activations.get(self.classifier_activation) not in (
            activations.get("softmax"), activations.get(None),
        ):  # fmt: skip
            raise ValueError(
                f"{who}: with weights, classifier_activation is None or 'softmax', got "
                f"{self.classifier_activation!r}."
            )

    @property
    def imagenet(self) -> bool:
        """Whether the published weights are meant."""
        return self.weights == "imagenet"

    def image(self, size: int, least: int, fixed: bool | None = None) -> Any:
        """Return the symbolic image from which the network starts.

        Args:
            size: side of the image where no shape is given.
            least: smallest side that leaves something to the last layer.
            fixed: whether the sides must be known; None: where the classifier is included.
        """
        fixed = self.include_top if fixed is None else fixed
        self.input_shape = self._shape(size, least, fixed)
        if self.input_tensor is None:
            return Input(shape=self.input_shape)
        if is_keras_tensor(self.input_tensor):
            return self.input_tensor
        return Input(tensor=self.input_tensor, shape=self.input_shape)

    def _shape(self, size: int, least: int, fixed: bool) -> tuple[int | None, ...]:
        who, shape = self.name or "application", self.input_shape
        if shape is not None and len(shape) != 3:
            raise ValueError(
                f"{who}: input_shape is a tuple of three sizes (without the batch axis), got "
                f"{shape}."
            )
        channels = 3 if shape is None else shape[channel_axis(batch=False)]
        if channels not in (1, 3) and not self.imagenet:
            warnings.warn(
                f"{who}: images usually have 1 or 3 channels, input_shape={shape} says {channels}.",
                stacklevel=levels_to_user(),
            )
        usual = _shape_of((size, size), 3 if self.imagenet else channels)
        if self.imagenet and fixed:
            if shape not in (None, usual):
                raise ValueError(
                    f"{who}: the classifier's ImageNet weights need input_shape={usual}, got "
                    f"{shape}; pass include_top=False for other sizes."
                )
            return usual
        if shape is None:
            return usual if fixed else _shape_of((None, None), 3)
        if self.imagenet and channels != 3:
            raise ValueError(
                f"{who}: the ImageNet weights need images of 3 channels, got input_shape={shape}."
            )
        sides = image_sides(shape, batch=False)
        if any(side is not None and side < least for side in sides):
            raise ValueError(
                f"{who}: images must be at least {least} x {least}, got input_shape={shape}."
            )
        if fixed and None in shape:
            raise ValueError(
                f"{who}: the classifier needs a known input_shape, got {shape}; pass "
                "include_top=False for images of any size."
            )
        return shape

    def head(
        self, x: Any, average: str | None = None, maximum: str | None = None,
        pooled: str | None = None, dropout: tuple[float, str | None] | None = None,
        pool_top: bool = True, **classifier: Any,
    ) -> Any:  # fmt: skip
        """Return the classifier of features `x`, or `x` pooled as `pooling` says.

        Args:
            average: name of the mean over the image before the classifier; None: automatic.
            pooled, maximum: names of the mean and the maximum without the classifier.
            dropout: rate and name of a dropout before the classifier.
            pool_top: whether a mean over the image precedes the classifier.
            classifier: further arguments of the last layer.
        """
        if not self.include_top:
            if self.pooling is None:
                return x
            if self.pooling == "avg":
                return GlobalAveragePooling2D(name=pooled)(x)
            return GlobalMaxPooling2D(name=maximum)(x)
        if pool_top:
            x = GlobalAveragePooling2D(name=average)(x)
        if dropout is not None:
            x = Dropout(dropout[0], name=dropout[1])(x)
        return Dense(
            self.classes, activation=self.classifier_activation, name="predictions", **classifier
        )(x)

    def model(self, image: Any, x: Any, published: Published | None) -> Functional:
        """Return the model from `image` to `x`, its weights loaded."""
        inputs = image if self.input_tensor is None else get_source_inputs(self.input_tensor)
        model = Functional(inputs, x, name=self.name)
        if self.imagenet:
            if published is None:
                raise ValueError(
                    f"{self.name}: no ImageNet weights are published for these arguments; pass "
                    "weights=None or the path of a file."
                )
            model.load_weights(self._download(published))
        elif self.weights is not None:
            model.load_weights(self.weights)
        return model

    def _download(self, published: Published) -> str:
        url = published.url if self.include_top else published.url_no_top
        names, which = published.names, int(not self.include_top)
        name = url.rpartition("/")[2] if names is None else names[which]
        checksum = published.hashes[which]
        try:
            return get_file(name, url, cache_subdir="models", file_hash=checksum)
        except ConnectionError as error:
            path = Path(cache_root()) / "models" / name
            raise ConnectionError(
                f"{self.name}: the ImageNet weights at {url} could not be downloaded. Fetch that "
                f"file elsewhere and put it at {path}, or pass weights=<path of the file>, or "
                "weights=None for random weights."
            ) from error


def channel_axis(batch: bool = True) -> int:
    """Return the axis of an image's channels.

    Args:
        batch: whether the image has a batch axis.

    Example:
        >>> channel_axis()
        3
    """
    return (0 if config.image_data_format() == "channels_first" else 2) + batch


def image_sides(shape: tuple[Any, ...], batch: bool = True) -> tuple[Any, ...]:
    """Return height and width in the shape of an image.

    Example:
        >>> image_sides((None, 32, 48, 3))
        (32, 48)
    """
    sizes = shape[1:] if batch else shape
    return sizes[1:] if config.image_data_format() == "channels_first" else sizes[:-1]


def square_side(shape: tuple[Any, ...] | None, tensor: Any) -> int | None:
    """Return the side of a square image given by its shape or by a tensor; None if unknown."""
    if shape is None and tensor is None:
        return None
    sides = image_sides(tensor.shape) if shape is None else image_sides(tuple(shape), batch=False)
    return sides[0] if len(sides) == 2 and sides[0] == sides[1] else None


def published_side(request: NetworkRequest, sides: tuple[int, ...], default: int) -> int | None:
    """Return the image's side, with ImageNet's weights the one whose file is loaded."""
    rows, columns = image_sides(tuple(request.input_shape or ()), batch=False)
    if not request.imagenet or (rows == columns and rows in sides):
        return rows
    if rows is None or columns is None:
        return default
    warnings.warn(
        f"{request.name}: weights are published for images of sides {sides}, the input is "
        f"{rows} x {columns}; those for {default} are loaded.",
        stacklevel=levels_to_user(),
    )
    return default


def _shape_of(sides: tuple[Any, ...], channels: Any) -> tuple[Any, ...]:
    if config.image_data_format() == "channels_first":
        return (channels, *sides)
    return (*sides, channels)


def divisible(value: float) -> int:
    """Return the multiple of 8 next to `value`, at least 8, and above 90 % of `value`.

    Source: Sandler et al. (2018), https://arxiv.org/abs/1801.04381

    Example:
        >>> divisible(35), divisible(11)
        (32, 16)
    """
    result = max(8, int(value + 4) // 8 * 8)
    return result + 8 if result < 0.9 * value else result


class Application(Protocol):
    """The signature that most applications share."""

    def __call__(
        self,
        include_top: bool = True,
        weights: PathLike | None = "imagenet",
        input_tensor: Any = None,
        input_shape: tuple[int | None, ...] | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: ActivationLike | None = "softmax",
        name: str = ...,
    ) -> Functional:
        """Return the model."""


def application(
    public: str, private: str, what: str, source: str, sides: tuple[int, int],
    layers: Callable[..., Any], published: Published, **table: Any,
) -> Application:  # fmt: skip
    """Return the function that builds a network.

    Args:
        public: the function's name.
        private: the model's name, unless the user gives one.
        what, source: what the network is, and the paper, for the docstring.
        sides: the usual and the smallest side of an image.
        layers: (image, request, **table) -> the model's output.
        published: the ImageNet weights.
        table: what distinguishes the network from others of its family.
    """

    def build(request: NetworkRequest) -> Functional:
        image = request.image(*sides)
        return request.model(image, layers(image, request, **table), published)

    build.__module__ = layers.__module__
    return network(Application, build, public, private, what, sides[0], source)


def layered(
    family: str, source: str, layers: Callable[..., Any], number: int, depths: tuple[int, ...],
    *hashes: str, version: str = "", folder: str | None = None,
) -> Application:  # fmt: skip
    """Return the function that builds a network which is named after its number of layers.

    Args:
        family, number, version: the name's parts ("ResNet", 50, "V2").
        source, layers: see `application`.
        depths: blocks or convolutions per stage; an argument of `layers`.
        hashes: the checksums of its two files.
        folder: where they are; None: where those of its family are.
    """
    public = f"{family}{number}{version}"
    what = " ".join((family, *([version.lower()] if version else []), f"with {number} layers"))
    published = kernels_file(folder or family.lower(), public.lower(), *hashes)
    return application(
        public, public.lower(), what, source, (224, 32), layers, published, depths=depths
    )


def network(
    signature: Any, build: Callable[..., Model], public: str, private: str, what: str,
    size: int, source: str,
) -> Any:  # fmt: skip
    """Return the function that builds a network, with the arguments of a protocol's `__call__`.

    Args:
        signature: the protocol; the default of `name` is `private`.
        build: (request, further arguments by name) -> the model.
        public, what, size, source: for the docstring; see `documented`.
        private: the model's name, unless the user gives one.
    """
    whole = inspect.signature(signature.__call__)
    named = {n: p for n, p in whole.parameters.items() if n != "self"}
    named["name"] = named["name"].replace(default=private)
    shown = whole.replace(parameters=list(named.values()))
    common = [field.name for field in fields(NetworkRequest)]

    def construct(*args: Any, **kwargs: Any) -> Model:
        try:
            given = shown.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{public}() {error}") from None
        given.apply_defaults()
        request = NetworkRequest(**{name: given.arguments.pop(name) for name in common})
        return build(request, **given.arguments)

    result: Any = functools.wraps(signature.__call__)(construct)
    result.__signature__, result.__module__ = shown, build.__module__
    return documented(result, public, what, size, source)


def weights_file(file: str, hashes: tuple[str, ...]) -> Published:
    """Return the weights whose address without its ending is given."""
    return Published(f"{file}.h5", f"{file}_notop.h5", (hashes[0], hashes[1]))


def kernels_file(folder: str, network: str, *hashes: str) -> Published:
    """Return the published weights whose files follow Keras's usual pattern of names."""
    file = f"{STORAGE}{folder}/{network}_weights_tf_dim_ordering_tf_kernels"
    return weights_file(file, hashes)


def documented(function: Function, name: str, what: str, size: int, source: str) -> Function:
    """Give `function` its public name and a docstring that explains its parameters.

    Args:
        what: what the network is, as half a sentence.
        size: side of its usual images.
        source: the paper.
    """
    parameters = list(inspect.signature(function).parameters)
    lines = [f"Return {what} as a `Model` on images.", "", "Args:"]
    usual = f"({size}, {size}, 3)"
    lines += [f"    {p}: {_ARGUMENTS[p].replace('{size}', usual)}" for p in parameters]
    lines += [
        "", "Returns:", "    A functional model, not compiled. Keras's layer names and order make",
        "    its weight files fit.", "", "Raises:",
        "    ValueError: arguments do not fit together, or a weights file does not exist.",
        '    ConnectionError: weights="imagenet" without a network; the message says which file',
        "        to put where.", "", f"Source: {source}", "", "Example:",
        f"    >>> model = {name}(weights=None, classes=10)  # doctest: +SKIP",
    ]  # fmt: skip
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "\n".join(lines) + "\n"
    return function
