"""The named workloads, each written once in Keras's own API.

A `build` takes the module (`keras` or `kerasish`) and returns the model, so that every Keras-like
peer runs the very same lines. Outputs are logits, as in the plain torch and JAX versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

VOCABULARY = 10_000
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Workload:
    """A model, the shape of one sample and how many steps make a fair round.

    Args:
        shape: of one sample, without the batch axis.
        steps: steps in one timed round, chosen for rounds of about a second.
        vocabulary: number of token ids, or 0 where samples are floats.
        policy: the dtype policy that the model is built with.
        resident: whether two batches are on the device for all steps, so that neither
            host memory nor the way to the device counts.
        labels: the shape of one sample's labels: (), or that of its tokens or pixels.
    """

    name: str
    batch: int
    shape: tuple[int, ...]
    classes: int
    steps: int
    build: Callable[[Any], Any]
    summary: str
    vocabulary: int = 0
    policy: str = "float32"
    resident: bool = False
    labels: tuple[int, ...] = ()

    def samples(self, steps: int) -> int:
        """How many samples this many steps need."""
        return self.batch * (2 if self.resident else steps)


def make_data(workload: Workload, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`count` samples and labels that a model can learn: x float32 or int32, y int32.

    A label is of a whole sample, or there is one for each of its tokens or pixels.
    """
    rng = np.random.default_rng(seed)
    shape = (count, *workload.shape)
    if workload.vocabulary:
        x = rng.integers(0, workload.vocabulary, shape, dtype=np.int32)
        if workload.labels:
            return x, np.roll(x, -1, axis=1)
        return x, (x[:, :4].sum(axis=1) % workload.classes).astype(np.int32)
    x = rng.standard_normal(shape, dtype=np.float32)
    if workload.labels:
        rule = rng.standard_normal((shape[-1], workload.classes), dtype=np.float32)
        return x, (x @ rule).argmax(axis=-1).astype(np.int32)
    flat = x.reshape(count, -1)[:, :64]
    rule = rng.standard_normal((flat.shape[1], workload.classes), dtype=np.float32)
    return x, (flat @ rule).argmax(axis=1).astype(np.int32)


def compile_model(keras: Any, model: Any, optimizer: Any = None) -> Any:
    """`model` compiled as every workload is: Adam, sparse cross-entropy on logits, accuracy."""
    model.compile(
        optimizer=optimizer or keras.optimizers.Adam(learning_rate=LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def build_mlp(keras: Any) -> Any:
    """784-512-512-10 with ReLU."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape=(784,)),
            layers.Dense(512, activation="relu"),
            layers.Dense(512, activation="relu"),
            layers.Dense(10),
        ]
    )


def build_tiny(keras: Any) -> Any:
    """20-32-32-2 with ReLU: the overhead when the arithmetic costs nothing."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape=(20,)),
            layers.Dense(32, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(2),
        ]
    )


def build_cnn(keras: Any) -> Any:
    """Conv32-pool-Conv64-pool-dropout-Dense on 28x28x1."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape=(28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )


def build_resnet20(keras: Any) -> Any:
    """ResNet-20 for 32x32x3 (He et al. 2015, section 4.2), projection where the shape changes."""
    layers = keras.layers

    def convolve(x: Any, filters: int, size: int, stride: int) -> Any:
        x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    def block(x: Any, filters: int, stride: int) -> Any:
        y = layers.ReLU()(convolve(x, filters, 3, stride))
        y = convolve(y, filters, 3, 1)
        if stride != 1:
            x = convolve(x, filters, 1, stride)
        return layers.ReLU()(layers.Add()([x, y]))

    inputs = keras.Input(shape=(32, 32, 3))
    x = layers.ReLU()(convolve(inputs, 16, 3, 1))
    for filters in (16, 32, 64):
        for index in range(3):
            x = block(x, filters, 2 if filters > 16 and index == 0 else 1)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10)(x))


def build_lstm(keras: Any) -> Any:
    """Embedding 128 -> LSTM 128 over 80 tokens -> Dense."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape=(80,), dtype="int32"),
            layers.Embedding(VOCABULARY, 128),
            layers.LSTM(128),
            layers.Dense(2),
        ]
    )


def build_transformer(
    keras: Any, length: int = 64, width: int = 128, heads: int = 4, hidden: int = 512,
    blocks: int = 2,
) -> Any:  # fmt: skip
    """Token + position embedding, encoder blocks (as it comes: two of d 128), mean, Dense."""
    layers = keras.layers

    class TokenAndPosition(layers.Layer):  # type: ignore[name-defined, misc]
        """token[x] + position[0..length-1]."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.token = layers.Embedding(VOCABULARY, width)
            self.position = layers.Embedding(length, width)

        def call(self, x: Any) -> Any:
            return self.token(x) + self.position(keras.ops.arange(length, dtype="int32"))

    inputs = keras.Input(shape=(length,), dtype="int32")
    x = TokenAndPosition()(inputs)
    for _ in range(blocks):
        y = layers.MultiHeadAttention(num_heads=heads, key_dim=width // heads)(x, x)
        x = layers.LayerNormalization(epsilon=1e-6)(x + y)
        y = layers.Dense(hidden, activation="relu")(x)
        y = layers.Dense(width)(y)
        x = layers.LayerNormalization(epsilon=1e-6)(x + y)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(2, dtype="float32")(x))


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mlp", 128, (784,), 10, 200, build_mlp, "784-512-512-10, ReLU"),
        Workload("tiny", 32, (20,), 2, 1500, build_tiny, "20-32-32-2, ReLU"),
        Workload(
            "cnn", 128, (28, 28, 1), 10, 30, build_cnn, "Conv32-pool-Conv64-pool-dropout-Dense"
        ),
        Workload("resnet20", 64, (32, 32, 3), 10, 6, build_resnet20, "ResNet-20 on 32x32x3"),
        Workload("lstm", 32, (80,), 2, 30, build_lstm, "Embedding-LSTM 128, 80 tokens", VOCABULARY),
        Workload(
            "transformer",
            32,
            (64,),
            2,
            15,
            build_transformer,
            "2 blocks, d128, 64 tokens",
            VOCABULARY,
        ),
    )
}
