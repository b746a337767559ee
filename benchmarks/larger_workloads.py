"""Larger models for the CPU, each written once in Keras's own API; outputs are logits."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.gpu_workloads import build_resnet50
from benchmarks.workloads import VOCABULARY, Workload

TOKENS = 8_000  # of the language model
ITEMS = 1_000_000  # of the tables of the recommender


def build_dense_norm(keras: Any, depth: int = 10, width: int = 512) -> Any:
    """Ten Dense layers, each with BatchNormalization and ReLU."""
    layers = keras.layers
    parts = [keras.Input(shape=(width,))]
    for _ in range(depth):
        parts += [layers.Dense(width, use_bias=False), layers.BatchNormalization(), layers.ReLU()]
    return keras.Sequential([*parts, layers.Dense(10)])


def build_mobilenet(keras: Any, side: int = 96) -> Any:
    """Depthwise separable convolutions: MobileNet (Howard et al. 2017, table 1) at half width."""
    layers = keras.layers
    parts = [keras.Input(shape=(side, side, 3))]
    parts += [layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False)]
    parts += [layers.BatchNormalization(), layers.ReLU()]
    for filters, stride in MOBILENET:
        parts += [layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)]
        parts += [layers.BatchNormalization(), layers.ReLU()]
        parts += [layers.Conv2D(filters, 1, use_bias=False)]
        parts += [layers.BatchNormalization(), layers.ReLU()]
    return keras.Sequential([*parts, layers.GlobalAveragePooling2D(), layers.Dense(10)])


MOBILENET = (
    (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), *((256, 1),) * 5, (512, 2), (512, 1),
)  # fmt: skip


def build_gpt(
    keras: Any, length: int = 128, width: int = 384, heads: int = 6, blocks: int = 6
) -> Any:
    """A language model: causal attention, normalized first, GELU; each token predicts the next."""
    layers, ops = keras.layers, keras.ops

    class TokenAndPosition(layers.Layer):  # type: ignore[name-defined, misc]
        """token[x] + position[0..length-1]."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.token = layers.Embedding(TOKENS, width)
            self.position = layers.Embedding(length, width)

        def call(self, x: Any) -> Any:
            return self.token(x) + self.position(ops.arange(length, dtype="int32"))

    inputs = keras.Input(shape=(length,), dtype="int32")
    x = TokenAndPosition()(inputs)
    for _ in range(blocks):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    return keras.Model(inputs, layers.Dense(TOKENS)(x))


def build_resnet18(keras: Any, side: int = 64) -> Any:
    """ResNet-18 (He et al. 2015, table 1)."""
    layers = keras.layers

    def convolve(x: Any, filters: int, size: int, stride: int = 1) -> Any:
        x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    def block(x: Any, filters: int, stride: int) -> Any:
        y = layers.ReLU()(convolve(x, filters, 3, stride))
        y = convolve(y, filters, 3)
        if stride != 1:
            x = convolve(x, filters, 1, stride)
        return layers.ReLU()(layers.Add()([x, y]))

    inputs = keras.Input(shape=(side, side, 3))
    x = layers.ReLU()(convolve(inputs, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for stage, filters in enumerate((64, 128, 256, 512)):
        x = block(block(x, filters, 2 if stage else 1), filters, 1)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def build_unet(keras: Any, side: int = 96, classes: int = 4) -> Any:
    """A U-Net (Ronneberger et al. 2015) of three levels: a class for each pixel."""
    layers = keras.layers

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    inputs = keras.Input(shape=(side, side, 3))
    x, kept = inputs, []
    for filters in (32, 64, 128):
        x = twice(x, filters)
        kept.append(x)
        x = layers.MaxPooling2D(2)(x)
    x = twice(x, 256)
    for filters in (128, 64, 32):
        x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = twice(layers.Concatenate()([kept.pop(), x]), filters)
    return keras.Model(inputs, layers.Conv2D(classes, 1)(x))


def build_vit(
    keras: Any, side: int = 96, patch: int = 8, width: int = 192, heads: int = 3, blocks: int = 6
) -> Any:
    """A vision transformer (Dosovitskiy et al. 2020), the mean of its tokens for the class."""
    layers, ops = keras.layers, keras.ops
    tokens = (side // patch) ** 2

    class Position(layers.Layer):  # type: ignore[name-defined, misc]
        """x + position[0..tokens-1]."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.position = layers.Embedding(tokens, width)

        def call(self, x: Any) -> Any:
            return x + self.position(ops.arange(tokens, dtype="int32"))

    inputs = keras.Input(shape=(side, side, 3))
    x = layers.Conv2D(width, patch, strides=patch)(inputs)
    x = Position()(layers.Reshape((tokens, width))(x))
    for _ in range(blocks):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, y)
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return keras.Model(inputs, layers.Dense(10)(x))


def build_lstm_language(keras: Any, width: int = 512) -> Any:
    """Two LSTMs over an embedding; each token predicts the next of a large vocabulary."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape=(64,), dtype="int32"),
            layers.Embedding(VOCABULARY, width),
            layers.LSTM(width, return_sequences=True),
            layers.LSTM(width, return_sequences=True),
            layers.Dense(VOCABULARY),
        ]
    )


def build_wide_deep(keras: Any, columns: int = 8, width: int = 16) -> Any:
    """A recommender (Cheng et al. 2016): a linear part and a deep one, tables of a million rows."""
    layers = keras.layers
    inputs = keras.Input(shape=(columns,), dtype="int32")
    wide = layers.Flatten()(layers.Embedding(ITEMS, 2)(inputs))
    wide = layers.Dense(2)(wide)
    deep = layers.Flatten()(layers.Embedding(ITEMS, width)(inputs))
    for units in (128, 64):
        deep = layers.Dense(units, activation="relu")(deep)
    return keras.Model(inputs, layers.Add()([wide, layers.Dense(2)(deep)]))


_ALL = (
    Workload(
        "dense-norm", 1024, (512,), 10, 4, build_dense_norm,
        "ten Dense 512 with BatchNormalization",
    ),
    Workload(
        "mobilenet", 32, (96, 96, 3), 10, 4, build_mobilenet, "MobileNet-like, half width, 96x96"
    ),
    Workload(
        "gpt", 8, (128,), TOKENS, 2, build_gpt, "GPT-like: 6 blocks, d384, 128 tokens", TOKENS,
        labels=(128,),
    ),
    Workload("resnet18", 32, (64, 64, 3), 10, 3, build_resnet18, "ResNet-18 on 64x64x3"),
    Workload(
        "resnet50-96", 16, (96, 96, 3), 10, 2, partial(build_resnet50, side=96, classes=10),
        "ResNet-50 on 96x96x3",
    ),
    Workload(
        "unet", 8, (96, 96, 3), 4, 2, build_unet, "U-Net of 3 levels on 96x96x3", labels=(96, 96)
    ),
    Workload("vit", 16, (96, 96, 3), 10, 3, build_vit, "ViT: 6 blocks, d192, 144 patches"),
    Workload(
        "lstm512", 32, (64,), VOCABULARY, 2, build_lstm_language,
        "two LSTM 512 over 64 tokens, vocabulary of 10,000", VOCABULARY, labels=(64,),
    ),
    Workload(
        "wide-deep", 256, (8,), 2, 4, build_wide_deep, "wide and deep, tables of 1,000,000 rows",
        ITEMS,
    ),
)  # fmt: skip

LARGER = {workload.name: workload for workload in _ALL}
