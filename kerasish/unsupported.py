"""What Keras has and kerasish leaves out, and what to use instead: one table for all packages."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from typing import Any

_TENSORFLOW = (
    "it runs TensorFlow's runtime on a SavedModel; call tf.saved_model.load() in a function of the "
    "data pipeline, or convert the model to ONNX and read it with kerasish.saving.load_onnx()"
)
_JAX = "it is for Keras's JAX trainer; override train_step, or use kerasish.value_and_grad"

# module ("" for the root) -> name -> what to use instead
UNSUPPORTED: dict[str, dict[str, str]] = {
    "": {
        "distillation": (
            "train the student by a custom train_step that adds the teacher's loss, or save "
            "the models and distil in Keras"
        ),
    },
    "layers": {
        "TFSMLayer": _TENSORFLOW,
    },
    "callbacks": {
        "OrbaxCheckpoint": (
            "Orbax writes JAX's checkpoints; use BackupAndRestore to continue after a crash, "
            "ModelCheckpoint to keep the best model"
        )
    },
}  # fmt: skip

# Methods of layers, models and operations.
METHODS: dict[str, str] = {
    **dict.fromkeys(
        ("compute_loss_and_updates", "stateless_compute_loss", "jax_state_sync"), _JAX
    ),
}  # fmt: skip

# Methods that layers and models of Keras have only on PyTorch.
TORCH_METHODS: dict[str, str] = {
    "zero_grad": (
        "it is PyTorch's; in a train_step set v.grad = None for each v in self.trainable_weights, "
        "call loss.backward(), and then self.optimizer.apply([v.grad for v in "
        "self.trainable_weights], self.trainable_weights); kerasish.no_gradient() replaces "
        "torch.no_grad()"
    ),
}  # fmt: skip


class UnsupportedError(AttributeError):
    """A name of Keras that kerasish leaves out; the message says what to use instead."""


class UnsupportedImportError(ImportError):
    """The same, where the name is in `from ... import`."""


def explain(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: it says what to use instead of names left out.

    Example:
        >>> explain("kerasish.layers")("TFSMLayer")
        Traceback (most recent call last):
        ...
        kerasish.unsupported.UnsupportedError: kerasish.layers.TFSMLayer is not supported: ...
    """
    table = UNSUPPORTED.get(module.partition(".")[2], {})

    def look_up(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        text = f"{module}.{name} is not supported: {table[name]}."
        # Python replaces the text of an AttributeError inside `from ... import`.
        if _stands_in_import(sys._getframe(1)):
            raise UnsupportedImportError(text)
        raise UnsupportedError(text)

    return look_up


def refuse_method(owner: object, name: str) -> None:
    """Raise UnsupportedError where `name` is a method of Keras's without support here."""
    why = METHODS.get(name) or TORCH_METHODS.get(name)
    if why:
        raise UnsupportedError(f"{type(owner).__name__}.{name} is not supported: {why}.")


def _stands_in_import(frame: Any) -> bool:
    while frame.f_code.co_name in ("__getattr__", "look_up"):
        frame = frame.f_back
    place = frame.f_lasti
    code = frame.f_code.co_code
    return 0 <= place < len(code) and dis.opname[code[place]] == "IMPORT_FROM"
