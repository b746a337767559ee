"""LoRA: a frozen weight, and a trained product of two small ones next to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kerasish import initializers, ops
from kerasish.engine.layer.layer import Layer
from kerasish.engine.layer.weights import loaded_by_number
from kerasish.tensor import Tensor, Variable, to_numpy
from kerasish.typing import AnyTensor, InitializerLike


class LowRankLayer(Layer):
    """A layer whose large weight may be frozen and adapted by a product of two small ones.

    With LoRA on, the layer computes with w + lora_alpha / lora_rank * a @ b, where the weight w is
    frozen, and a (..., rank) and b (rank, outputs) are trained. The layer never forms that sum for
    its results: a step then computes no gradient of the size of w.

    Weight files hold the sum in the place of w, so that they fit layers without LoRA; legacy `.h5`
    files hold w, a and b.

    Attributes:
        lora_enabled: whether LoRA is on.
        lora_rank: the rank; None: LoRA stays off.
        lora_alpha: factor of the product, divided by the rank; None: the rank.
        adapted: the name of the attribute that holds the weight.

    Source: Hu et al. (2021), https://arxiv.org/abs/2106.09685
    """

    lora_enabled = False
    lora_rank: int | None = None
    lora_alpha: float | None = None
    adapted = "kernel"

    def plan_lora(self, rank: int | None, alpha: float | None) -> None:
        """Let `build` turn LoRA on, if a rank is given; to be called in the constructor.

        Args:
            rank: size of the small weights' common axis, >= 1; None or 0: no LoRA.
            alpha: factor of their product, divided by the rank; None: the rank.
        """
        if rank:
            self._check_lora(rank)
        self.lora_rank, self.lora_alpha = rank, alpha if alpha is not None else rank

    def start_lora(self) -> None:
        """Turn LoRA on where a rank was given; to be called at the end of `build`."""
        if self.lora_rank:
            self._add_lora(self.lora_rank, "he_uniform", "zeros")

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: InitializerLike = "he_uniform",
        b_initializer: InitializerLike = "zeros",
    ) -> None:
        """Freeze the layer's large weight, and train a product of two small ones next to it.

        A model must be compiled after this. Training then changes the small weights, and the bias
        unless it is frozen, too.

        Args:
            rank: size of the small weights' common axis, >= 1.
            lora_alpha: factor of their product, divided by the rank; None: the rank.
            a_initializer: what the first weight starts from.
            b_initializer: what the second one starts from; zeros leave the layer's results as
                they were.

        Raises:
            ValueError: the layer is not built, has LoRA already, or constrains the weight.

        Example:
            >>> from kerasish import layers
            >>> dense = layers.Dense(8)
            >>> dense.build((None, 16))
            >>> dense.enable_lora(2)
            >>> [v.name for v in dense.trainable_weights]
            ['bias', 'lora_kernel_a', 'lora_kernel_b']
        """
        who = self.display_name()
        self._check_lora(rank)
        if not self.built:
            raise ValueError(
                f"{who}: enable_lora needs the shape of {self.adapted!r}; build the layer or call "
                "it on data first."
            )
        if self.lora_enabled:
            raise ValueError(
                f"{who}: lora is already enabled (rank {self.lora_rank}); it can be enabled once."
            )
        self.lora_rank, self.lora_alpha = rank, lora_alpha if lora_alpha is not None else rank
        with self.adding_weights():
            self._add_lora(rank, a_initializer, b_initializer)

    def _check_lora(self, rank: int) -> None:
        who, name = self.display_name(), self.adapted
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
            raise ValueError(f"{who}: the rank of LoRA is an integer >= 1, got {rank!r}.")
        if getattr(self, f"{name}_constraint", None) is not None:
            raise ValueError(
                f"{who}: LoRA cannot keep {name}_constraint, for the constrained weight is a sum "
                f"then; leave out {name}_constraint or LoRA."
            )

    def _add_lora(self, rank: int, first: InitializerLike, second: InitializerLike) -> None:
        weight, name = self.adapted_weight, self.adapted
        *rest, last = self.adapted_shape()
        shapes = {"a": (*rest, rank), "b": (rank, last)}
        # float32 for any dtype of the layer: small changes of a few numbers must not be lost.
        for part, initializer in (("a", first), ("b", second)):
            variable = self.add_weight(
                name=f"lora_{name}_{part}", shape=shapes[part], dtype="float32",
                initializer=initializers.get(initializer),
                regularizer=getattr(self, f"{name}_regularizer", None),
            )  # fmt: skip
            setattr(self, f"lora_{name}_{part}", variable)
        weight.trainable = False
        self.lora_enabled = True

    @property
    def adapted_weight(self) -> Variable:
        """The large weight itself, without the product."""
        return getattr(self, f"_{self.adapted}")

    def adapted_shape(self) -> tuple[int, ...]:
        """Return the shape of the large weight."""
        return tuple(self.adapted_weight.shape)

    @property
    def lora_scale(self) -> float:
        """The factor of the product: lora_alpha / lora_rank."""
        return float(self.lora_alpha or 0.0) / float(self.lora_rank or 1)

    def lora_parts(self, dtype: str) -> tuple[Tensor, Tensor]:
        """Return the small weights a and b in a dtype, for `call`."""
        first, second = (getattr(self, f"lora_{self.adapted}_{part}") for part in "ab")
        return ops.cast(first, dtype), ops.cast(second, dtype)

    def merged(self) -> AnyTensor:
        """Return what the layer computes with: the weight, plus the product where LoRA is on."""
        weight = self.adapted_weight
        if not self.lora_enabled:
            return weight
        product = ops.matmul(*self.lora_parts("float32"))
        return ops.cast(ops.add(weight, ops.multiply(product, self.lora_scale)), weight.dtype)

    def adapt(self, y: Tensor, low: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `y`, computed with the frozen weight, plus the product's part.

        Args:
            low: a -> the result with a in the place of the weight.
        """
        first, second = self.lora_parts(y.dtype)
        return ops.add(y, ops.multiply(ops.matmul(low(first), second), self.lora_scale))

    # --- files and configs ---------------------------------------------------------------------

    def _stored(self) -> list[Variable]:
        small = {f"lora_{self.adapted}_a", f"lora_{self.adapted}_b"}
        return [v for v in self.stored_variables() if v.name not in small or not self.lora_enabled]

    def save_own_variables(self, store: dict[Any, Any]) -> None:
        """Put the variables into `store`, with LoRA's product added to the weight."""
        if not self.lora_enabled:
            super().save_own_variables(store)
            return
        for i, v in enumerate(self._stored()):
            store[str(i)] = to_numpy(self.merged() if v is self.adapted_weight else v)

    @loaded_by_number(unless="lora_enabled")
    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Set the variables from `store`; LoRA starts at a product of zero again."""
        if not self.lora_enabled:
            super().load_own_variables(store)
            return
        self.load_in_order(self._stored(), store)
        # Only b: if a were zero as well, neither would ever get a gradient.
        second = getattr(self, f"lora_{self.adapted}_b")
        second.assign(ops.zeros(second.shape))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; those of LoRA where it is on."""
        config = super().get_config()
        for name in ("lora_rank", "lora_alpha"):
            config.pop(name, None)
            if self.lora_rank:
                config[name] = getattr(self, name)
        return config


class LowRankKernel(LowRankLayer):
    """A layer whose adapted weight is its kernel."""

    @property
    def kernel(self) -> AnyTensor:
        """The kernel; with LoRA the sum that the layer computes with."""
        return self.merged()

    @kernel.setter
    def kernel(self, value: Any) -> None:
        self._kernel = value
