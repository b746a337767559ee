"""Several successive changes, drawn for each call: RandAugment, AugMix, Pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from kerasish import ops, random, registry
from kerasish.engine.layer.layer import Layer
from kerasish.layers.augmentation.color import (
    RandomBrightness,
    RandomColorDegeneration,
    RandomContrast,
    RandomPosterization,
    Solarization,
)
from kerasish.layers.augmentation.filter import RandomSharpness
from kerasish.layers.augmentation.geometry import RandomRotation, RandomShear, RandomTranslation
from kerasish.layers.augmentation.histogram import AutoContrast, Equalization
from kerasish.layers.augmentation.picture import PictureLayer, read_interval
from kerasish.layers.options import LayerOptions
from kerasish.signatures import Unpack
from kerasish.tensor import Tensor
from kerasish.typing import AnyTensor, Array, FloatOrTuple, SeedLike, Structure


class _Choosing(PictureLayer):
    """Pictures to which one of several layers is applied, again and again."""

    def _make(
        self, factor: Sequence[float], value_range: Any, interpolation: str, all_ops: bool
    ) -> None:
        options: dict[str, Any] = {
            "seed": self.seed, "data_format": self.data_format, "dtype": self.dtype_policy,
            "bounding_box_format": self.bounding_box_format,
        }  # fmt: skip
        still = {k: v for k, v in options.items() if k != "seed"}
        moving = {**options, "interpolation": interpolation}
        levels = {**options, "value_range": value_range}
        bits = max(1, int(8 * factor[1]))
        self._choices: dict[str, PictureLayer] = {
            "random_shear": RandomShear(factor, factor, **moving),
            "random_translation": RandomTranslation(factor, factor, **moving),
            "random_rotation": RandomRotation(factor, **moving),
            "random_posterization": RandomPosterization(bits, **levels),
            "solarization": Solarization(factor, factor, **levels),
            "auto_contrast": AutoContrast(value_range, **still),
            "equalization": Equalization(value_range, **still),
        }
        if all_ops:
            self._choices |= {
                "random_brightness": RandomBrightness(factor, **levels),
                "random_color_degeneration": RandomColorDegeneration(factor, **levels),
                "random_contrast": RandomContrast(factor, **levels),
                "random_sharpness": RandomSharpness(factor, **levels),
            }

    def _draw_all(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        return {name: layer.draw(images, seed) for name, layer in self._choices.items()}

    def _apply(
        self,
        index: Tensor,
        transforms: dict[str, Any],
        x: dict[str, Any] | Tensor,
        rule: Callable[[PictureLayer], Any],
    ) -> Any:
        """Return x changed by the layer number `index`; a number too far changes nothing."""

        def branch(name: str, layer: PictureLayer) -> Callable[[Any], Any]:
            return lambda x: rule(layer)(x, transforms[name])

        branches = [branch(name, layer) for name, layer in self._choices.items()]
        return ops.switch(index, [*branches, lambda x: x], x)

    def _changed(self, x: Any, transformation: Structure, rule: Callable[..., Any]) -> Any:
        """Return pictures, masks or boxes changed as drawn; `rule` gives a layer's method."""
        raise NotImplementedError(f"{type(self).__name__} defines no _changed.")

    def transform_segmentation_masks(
        self, segmentation_masks: AnyTensor, transformation: Structure = None, training: bool = True
    ) -> AnyTensor:
        """Change masks as the pictures: by those of the layers drawn that move pixels."""
        if self._idle(transformation, training):
            return segmentation_masks
        x = ops.convert_to_tensor(segmentation_masks)
        return self._batched(lambda x: self._changed(x, transformation, _masks), x)


_pictures = attrgetter("transform_images")
_masks = attrgetter("transform_segmentation_masks")
_boxes = attrgetter("transform_bounding_boxes")


class RandAugment(_Choosing):
    """In training: `num_ops` changes after each other, each drawn from eleven.

    Args:
        value_range: the least and the largest value of a pixel.
        num_ops: number of changes.
        factor: the interval of their strength, within [0, 1]; one number f: [0, f].
        interpolation: "bilinear" or "nearest".
        seed: of all numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Cubuk et al., NeurIPS 2020.

    Example:
        >>> RandAugment(value_range=(0, 1))(ops.ones((1, 4, 4, 3)) * 0.5, training=True).shape
        (1, 4, 4, 3)
    """

    mask_rule, moves = "nearest", True

    def __init__(
        self,
        value_range: Sequence[float] = (0, 255),
        num_ops: int = 2,
        factor: FloatOrTuple = 0.5,
        interpolation: str = "bilinear",
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.factor = read_interval(factor, (0.0, 1.0), self.display_name())
        self.value_range, self.num_ops, self.interpolation = value_range, num_ops, interpolation
        self._make(self.factor, value_range, interpolation, True)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return which layers are applied, (num_ops,), and what each of them draws."""
        count = len(self._choices)
        chosen = random.randint((self.num_ops,), 0, count, seed=seed)
        return {"transforms": self._draw_all(images, seed), "layer_idxes": chosen}

    def _changed(self, x: Any, transformation: Structure, rule: Callable[..., Any]) -> Any:
        chosen = ops.convert_to_tensor(transformation["layer_idxes"])
        for i in range(self.num_ops):
            x = self._apply(chosen[i], transformation["transforms"], x, rule)
        return x

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> AnyTensor:
        """Apply the layers drawn."""
        nearest = interpolation == "nearest" != self.interpolation
        return self._changed(images, transformation, _masks if nearest else _pictures)

    def transform_bounding_boxes(
        self,
        bounding_boxes: dict[str, Any],
        transformation: Structure = None,
        training: bool = True,
    ) -> Structure:
        """Apply the layers drawn: those that move pixels change boxes."""
        if self._idle(transformation, training):
            return bounding_boxes
        boxes = self._checked(bounding_boxes)
        boxes["boxes"] = ops.cast(boxes["boxes"], "float32")
        return self._changed(boxes, transformation, _boxes)


class AugMix(_Choosing):
    """In training: w x + (1 - w) Σ v_i chain_i(x): a mix of several chains of changes.

    Args:
        value_range: the least and the largest value of a pixel.
        num_chains: number of chains.
        chain_depth: number of changes in a chain; each of them may be none.
        factor: the interval of their strength, within [0, 1]; one number f: [0, f].
        alpha: w is drawn from Beta(alpha, alpha), the v from a Dirichlet distribution.
        all_ops: whether brightness, color, contrast and sharpness may change as well.
        interpolation: "bilinear" or "nearest".
        seed: of all numbers; None: drawn.
        data_format: "channels_last" or "channels_first"; None: the default.

    Source: Hendrycks et al., ICLR 2020.

    Example:
        >>> AugMix(value_range=(0, 1))(ops.ones((1, 4, 4, 3)) * 0.5, training=True).shape
        (1, 4, 4, 3)
    """

    mask_rule = "nearest"

    def __init__(
        self,
        value_range: Sequence[Any] = (0, 255),
        num_chains: int = 3,
        chain_depth: int = 3,
        factor: FloatOrTuple = 0.3,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: str = "bilinear",
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(seed=seed, data_format=data_format, **kwargs)
        self.factor = read_interval(factor, (0.0, 1.0), self.display_name())
        self.value_range, self.interpolation = value_range, interpolation
        self.num_chains, self.chain_depth = num_chains, chain_depth
        self.alpha, self.all_ops = alpha, all_ops
        self._make(self.factor, value_range, interpolation, all_ops)

    def draw(self, images: Tensor, seed: SeedLike) -> dict[str, Any]:
        """Return the weights, and for each place in each chain a layer and what all draw."""
        shares = random.gamma((self.num_chains,), self.alpha, dtype="float32", seed=seed)
        places = (self.num_chains, self.chain_depth)
        return {
            "chain_mixing_weights": shares / ops.sum(shares),
            "weight_sample": random.beta((), self.alpha, self.alpha, dtype="float32", seed=seed),
            "layer_idxes": random.randint(places, 0, len(self._choices) + 1, seed=seed),
            "chain_transforms": [
                [self._draw_all(images, seed) for _ in range(self.chain_depth)]
                for _ in range(self.num_chains)
            ],
        }

    def _changed(self, x: Any, transformation: Structure, rule: Callable[..., Any]) -> Any:
        kind = x.dtype if x.dtype.startswith(("float", "bfloat")) else self.compute_dtype
        chosen = transformation["layer_idxes"]
        shares = ops.cast(transformation["chain_mixing_weights"], kind)
        total = ops.zeros(x.shape, kind)
        for i, chain in enumerate(transformation["chain_transforms"]):
            y = x
            for j, transforms in enumerate(chain):
                y = self._apply(chosen[i, j], transforms, y, rule)
            total = total + ops.cast(y, kind) * shares[i]
        weight = ops.cast(transformation["weight_sample"], kind)
        return weight * ops.cast(x, kind) + (1 - weight) * total

    def alter(self, images: Tensor, transformation: Structure, interpolation: str) -> Tensor:
        """Mix the chains."""
        return ops.clip(self._changed(images, transformation, _pictures), *self.value_range)


class Pipeline(Layer):
    """Layers one after another, for data rather than for a model.

    Args:
        layers: the layers.
        name: the pipeline's name; None: made from the class's name.

    Example:
        >>> from kerasish import layers
        >>> layer = Pipeline([layers.RandomFlip(), layers.RandomContrast(0.1)])
        >>> layer(ops.ones((1, 4, 4, 3)), training=True).shape
        (1, 4, 4, 3)
    """

    def __init__(self, layers: Sequence[Any], name: str | None = None) -> None:
        super().__init__(name=name)
        self._steps = list(layers)
        self.built = True

    @property
    def layers(self) -> list[Any]:
        """The layers, first to last."""
        return self._steps

    def call(self, inputs: Tensor, training: bool = True, mask: AnyTensor | None = None) -> Tensor:
        """Apply the layers."""
        for layer in self._steps:
            options: dict[str, Any] = {}
            if layer.call_parts.training:
                options["training"] = training
            if "mask" in layer.call_parts.masks and mask is not None:
                options["mask"] = mask
            outputs = layer(inputs, **options)
            mask = self._next_mask(layer, inputs, outputs, mask)
            inputs = outputs
        return inputs

    def _next_mask(
        self, layer: Layer, inputs: Tensor, outputs: Tensor, mask: AnyTensor | None
    ) -> Array:
        result = getattr(outputs, "_keras_mask", None)
        passes = layer.supports_masking or type(layer).compute_mask is not Layer.compute_mask
        if result is None and mask is not None and passes:
            return layer.compute_mask(inputs, mask)
        return result

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"name": self.name, "layers": registry.serialize_keras_object(self._steps)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Pipeline:
        """Return the pipeline that `get_config` described."""
        if not isinstance(config.get("layers"), (list, tuple)):
            raise ValueError(
                f"Pipeline.from_config: expected a list under 'layers', got {config.get('layers')}."
            )
        return super().from_config(config)
