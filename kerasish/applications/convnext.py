"""ConvNeXt: convolutional blocks after the pattern of transformers (Liu et al., 2022)."""

from __future__ import annotations

from typing import Any, Protocol

from kerasish import config, initializers, ops, registry
from kerasish.applications.blocks import activate, conv
from kerasish.applications.imagenet_utils import decode_predictions as decode_predictions
from kerasish.applications.imagenet_utils import scaling
from kerasish.applications.network import STORAGE, NetworkRequest, network, weights_file
from kerasish.engine import Layer, Model, Sequential
from kerasish.layers import Conv2D, Dense, GlobalAveragePooling2D, LayerNormalization, Normalization
from kerasish.typing import ActivationLike, AnyTensor, PathLike, Shape

_SOURCE = "Liu et al. (2022), https://arxiv.org/abs/2201.03545"
_EPSILON = 1e-6
_SCALE = 1e-6  # what residuals are multiplied by before training
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels

preprocess_input = scaling("none")


class LayerScale(Layer):
    """x * gamma, with one trained number per channel.

    Args:
        init_values: gamma before training.
        projection_dim: number of channels, >= 1.

    Source: Touvron et al. (2021), https://arxiv.org/abs/2103.17239
    """

    def __init__(self, init_values: float, projection_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.init_values, self.projection_dim = init_values, projection_dim

    def build(self, input_shape: Shape) -> None:
        """Make gamma (projection_dim,)."""
        self.gamma = self.add_weight(
            shape=(self.projection_dim,),
            initializer=initializers.Constant(self.init_values),
        )  # fmt: skip

    def call(self, inputs: AnyTensor) -> Any:
        """Scale."""
        return ops.multiply(inputs, self.gamma)


registry.add_builtins("keras.src.applications.convnext", {"LayerScale": LayerScale})


class _ConvNeXt(Protocol):
    def __call__(
        self,
        include_top: bool = True,
        include_preprocessing: bool = True,
        weights: PathLike | None = "imagenet",
        input_tensor: Any = None,
        input_shape: tuple[int | None, ...] | None = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: ActivationLike | None = "softmax",
        name: str = ...,
    ) -> Model:
        """Return the model."""


def _variant(
    size: str, depths: tuple[int, ...], widths: tuple[int, ...], *hashes: str
) -> _ConvNeXt:
    private = f"convnext_{size.lower()}"
    published = weights_file(f"{STORAGE}convnext/{private}", hashes)

    def build(request: NetworkRequest, include_preprocessing: bool) -> Model:
        if config.image_data_format() == "channels_first":
            raise ValueError(
                f"{request.name}: ConvNeXt's dense layers need the channels last; call "
                "config.set_image_data_format('channels_last')."
            )
        image = request.image(224, 32)
        x = image
        if include_preprocessing and image.shape[-1] == 3:
            x = _scaled(x, request.name)
        x = _features(x, depths, widths, request.name)
        x = _classifier(x, request) if request.include_top else request.head(x)
        if not request.include_top:
            x = LayerNormalization(epsilon=_EPSILON)(x)
        return request.model(image, x, published)

    what = f"ConvNeXt, {size.lower()}"
    return network(_ConvNeXt, build, f"ConvNeXt{size}", private, what, 224, _SOURCE)


def _scaled(image: Any, name: str) -> Any:
    mean = [255 * value for value in _MEAN]
    variance = [(255 * value) ** 2 for value in _DEVIATION]
    return Normalization(mean=mean, variance=variance, name=f"{name}_prestem_normalization")(image)


def _features(x: Any, depths: tuple[int, ...], widths: tuple[int, ...], name: str) -> Any:
    for stage, (depth, width) in enumerate(zip(depths, widths)):
        if stage == 0:
            shrink = [
                Conv2D(width, 4, strides=4, name=f"{name}_stem_conv"),
                LayerNormalization(epsilon=_EPSILON, name=f"{name}_stem_layernorm"),
            ]
            part = f"{name}_stem"
        else:
            prefix = f"{name}_downsampling"
            shrink = [
                LayerNormalization(epsilon=_EPSILON, name=f"{prefix}_layernorm_{stage - 1}"),
                Conv2D(width, 2, strides=2, name=f"{prefix}_conv_{stage - 1}"),
            ]
            part = f"{prefix}_block_{stage - 1}"
        x = Sequential(shrink, name=part)(x)
        for i in range(depth):
            x = _block(x, width, f"{name}_stage_{stage}_block_{i}_")
    return x


def _block(x: Any, width: int, name: str) -> Any:
    """Filter each channel by a 7x7 kernel, mix the channels by two dense layers."""
    y = conv(x, width, 7, name=f"{name}depthwise_conv", bias=True, groups=width)
    y = LayerNormalization(epsilon=_EPSILON, name=f"{name}layernorm")(y)
    y = Dense(4 * width, name=f"{name}pointwise_conv_1")(y)
    y = Dense(width, name=f"{name}pointwise_conv_2")(activate(y, "gelu", f"{name}gelu"))
    y = LayerScale(_SCALE, width, name=f"{name}layer_scale")(y)
    return x + activate(y, "linear", f"{name}identity")


def _classifier(x: Any, request: NetworkRequest) -> Any:
    x = GlobalAveragePooling2D(name=f"{request.name}_head_gap")(x)
    x = LayerNormalization(epsilon=_EPSILON, name=f"{request.name}_head_layernorm")(x)
    return Dense(
        request.classes, activation=request.classifier_activation, name=f"{request.name}_head_dense"
    )(x)


# Section 3 of the paper: blocks and channels per stage.
ConvNeXtTiny = _variant(
    "Tiny", (3, 3, 9, 3), (96, 192, 384, 768),
    "8ae6e78ce2933352b1ef4008e6dd2f17bc40771563877d156bc6426c7cf503ff",
    "d547c096cabd03329d7be5562c5e14798aa39ed24b474157cef5e85ab9e49ef1",
)  # fmt: skip
ConvNeXtSmall = _variant(
    "Small", (3, 3, 27, 3), (96, 192, 384, 768),
    "ce1277d8f1ee5a0ef0e171469089c18f5233860ceaf9b168049cb9263fd7483c",
    "6fc8009faa2f00c1c1dfce59feea9b0745eb260a7dd11bee65c8e20843da6eab",
)  # fmt: skip
ConvNeXtBase = _variant(
    "Base", (3, 3, 27, 3), (128, 256, 512, 1024),
    "52cbb006d3dadd03f6e095a8ca1aca47aecdd75acb4bc74bce1f5c695d0086e6",
    "40a20c5548a5e9202f69735ecc06c990e6b7c9d2de39f0361e27baeb24cb7c45",
)  # fmt: skip
ConvNeXtLarge = _variant(
    "Large", (3, 3, 27, 3), (192, 384, 768, 1536),
    "070c5ed9ed289581e477741d3b34beffa920db8cf590899d6d2c67fba2a198a6",
    "96f02b6f0753d4f543261bc9d09bed650f24dd6bc02ddde3066135b63d23a1cd",
)  # fmt: skip
ConvNeXtXLarge = _variant(
    "XLarge", (3, 3, 27, 3), (256, 512, 1024, 2048),
    "c1f5ccab661354fc3a79a10fa99af82f0fbf10ec65cb894a3ae0815f17a889ee",
    "de3f8a54174130e0cecdc71583354753d557fcf1f4487331558e2a16ba0cfe05",
)  # fmt: skip
