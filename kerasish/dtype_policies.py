"""Which dtype a layer computes in, and which its variables have."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from kerasish import config, registry
from kerasish.ops import dtypes
from kerasish.signatures import Configured
from kerasish.tracebacks import hides_frames
from kerasish.typing import Config, Structure

if TYPE_CHECKING:
    from typing_extensions import Self


class DTypePolicy(Configured):
    """A layer's compute dtype and variable dtype.

    Args:
        name: a dtype for both ("float32"), or "mixed_float16" / "mixed_bfloat16": variables in
            float32, computation in the half-width dtype; None: that of the process.

    Example:
        >>> p = DTypePolicy("mixed_bfloat16")
        >>> p.compute_dtype, p.variable_dtype
        ('bfloat16', 'float32')
    """

    def __init__(self, name: str | None = None) -> None:
        name = dtype_policy().name if name is None else name
        if not isinstance(name, str):
            raise TypeError(f"DTypePolicy: expected a name, got {name!r}.")
        self._name = name
        if name.startswith("mixed_"):
            self._compute, self._variable = dtypes.name_of(name[6:]), "float32"
        else:
            self._compute = self._variable = dtypes.name_of(name)

    @property
    def name(self) -> str:
        """The policy's name."""
        return self._name

    @property
    def compute_dtype(self) -> str:
        """The dtype in which the layer computes."""
        return self._compute

    @property
    def variable_dtype(self) -> str:
        """The dtype of the layer's variables."""
        return self._variable

    @property
    def quantization_mode(self) -> str | None:
        """How weights are quantized: "int8", "int4", "float8", "gptq" or "awq"; None: not."""
        return None

    def convert_input(self, x: Structure, autocast: bool, dtype: str) -> Structure:
        """Return x in `dtype` if it is a floating tensor and `autocast` holds."""
        own = getattr(x, "dtype", None)
        if autocast and own is not None and dtypes.is_float(str(own)) and own != dtype:
            return x.astype(dtype)
        return x

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"name": self._name}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f'<{type(self).__name__} "{self._name}">'


FloatDTypePolicy = DTypePolicy

QUANTIZATION_MODES = ("int8", "float8", "int4", "gptq", "awq")


class QuantizedDTypePolicy(DTypePolicy):
    """The policy of a layer with quantized weights.

    Args:
        mode: "int8", or "int4" for one scale per column; subclasses are for the other modes.
        source_name: the policy before the quantization, which sets the compute dtype; None:
            that of the process.

    Raises:
        ValueError: another mode; or "int8" from a policy that computes in float16, whose range is
            too small for the sums.

    Example:
        >>> policy = QuantizedDTypePolicy("int8", "mixed_bfloat16")
        >>> policy.name, policy.compute_dtype, policy.quantization_mode
        ('int8_from_mixed_bfloat16', 'bfloat16', 'int8')
    """

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        super().__init__(source_name)
        self.mode, self.source_name = mode.partition("/")[0], self._name
        if self.mode not in QUANTIZATION_MODES:
            raise ValueError(
                f"{type(self).__name__}: mode is one of {QUANTIZATION_MODES}, got {mode!r}."
            )
        if self.mode == "int8" and self._compute == "float16":
            raise ValueError(
                f"{type(self).__name__}: int8 products are too large for float16; quantize from "
                "'float32' or 'mixed_bfloat16'."
            )
        self._name = f"{mode}_from_{self.source_name}"

    @property
    def quantization_mode(self) -> str | None:
        """How weights are quantized."""
        return self.mode

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"mode": self._name.partition("_from_")[0], "source_name": self.source_name}

    def _read_numbers(self, mode: str, parts: tuple[str, ...]) -> list[int]:
        """Return the integers after the mode's name.

        Args:
            mode: such as "gptq/4/128".
            parts: its parts: the name, then what the numbers are called.
        """
        given = mode.split("/")
        form = "/".join((parts[0], *(f"<{part}>" for part in parts[1:])))
        numbers: list[int] = []
        if len(given) == len(parts) and given[0] == parts[0]:
            numbers = [int(n) for n in given[1:] if n.removeprefix("-").isdecimal()]
        if len(numbers) != len(parts) - 1:
            raise ValueError(
                f"{type(self).__name__}: mode is {form!r} with integers, got {mode!r}."
            )
        if numbers[-1] < -1 or numbers[-1] == 0:
            raise ValueError(
                f"{type(self).__name__}: {parts[-1]} is -1 (one group) or >= 1, got {mode!r}."
            )
        return numbers


class QuantizedFloat8DTypePolicy(QuantizedDTypePolicy):
    """The policy of a layer that rounds its products' factors to float8.

    Args:
        mode: "float8".
        source_name: the policy before; None: that of the process.
        amax_history_length: steps whose largest numbers are kept, >= 1.

    Example:
        >>> QuantizedFloat8DTypePolicy("float8", "float32").amax_history_length
        1024
    """

    default_amax_history_length = 1024

    def __init__(
        self, mode: str, source_name: str | None = None, amax_history_length: int = 1024
    ) -> None:
        super().__init__(mode, source_name)
        if not isinstance(amax_history_length, int):
            raise TypeError(
                "QuantizedFloat8DTypePolicy: amax_history_length is an integer, got "
                f"{amax_history_length!r}."
            )
        self.amax_history_length = amax_history_length

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantizedFloat8DTypePolicy) or not super().__eq__(other):
            return False
        return self.amax_history_length == other.amax_history_length

    __hash__ = QuantizedDTypePolicy.__hash__

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), "amax_history_length": self.amax_history_length}


class Int4DTypePolicy(QuantizedDTypePolicy):
    """The policy of a layer with int4 weights and a scale for each block of them.

    Args:
        mode: "int4/<block_size>": how many weights of a column share a scale; -1: all.
        source_name: the policy before; None: that of the process.

    Example:
        >>> Int4DTypePolicy("int4/128", "float32").block_size
        128
    """

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        (self.block_size,) = self._read_numbers(mode, ("int4", "block_size"))
        super().__init__(mode, source_name)


class _CalibratedPolicy(QuantizedDTypePolicy):
    _method = ""
    _bits: tuple[int, ...] = ()

    def __init__(self, mode: str, source_name: str | None = None) -> None:
        parts = (self._method, "weight_bits", "group_size")
        self.weight_bits, self.group_size = self._read_numbers(mode, parts)
        if self.weight_bits not in self._bits:
            raise ValueError(
                f"{type(self).__name__}: weight_bits is one of {self._bits}, got {mode!r}."
            )
        super().__init__(mode, source_name)


class GPTQDTypePolicy(_CalibratedPolicy):
    """The policy of a layer quantized by GPTQ.

    Args:
        mode: "gptq/<weight_bits>/<group_size>": 2, 3, 4 or 8 bits; how many weights of a row share
            a scale, -1: all.
        source_name: the policy before; None: that of the process.

    Example:
        >>> GPTQDTypePolicy("gptq/4/128", "float32").weight_bits
        4
    """

    _method, _bits = "gptq", (2, 3, 4, 8)


class AWQDTypePolicy(_CalibratedPolicy):
    """The policy of a layer quantized by AWQ.

    Args:
        mode: "awq/4/<group_size>": how many weights of a row share a scale, -1: all.
        source_name: the policy before; None: that of the process.

    Example:
        >>> AWQDTypePolicy("awq/4/64", "float32").group_size
        64
    """

    _method, _bits = "awq", (4,)


def _by_name(name: str) -> DTypePolicy:
    """Return the policy with this name, quantized or not."""
    if not name.startswith(QUANTIZATION_MODES) or "_from_" not in name:
        return DTypePolicy(name)
    mode, _, source = name.partition("_from_")
    kinds: dict[str, type[QuantizedDTypePolicy]] = {
        "gptq": GPTQDTypePolicy, "awq": AWQDTypePolicy, "float8": QuantizedFloat8DTypePolicy,
    }  # fmt: skip
    if mode.startswith("int4/"):
        return Int4DTypePolicy(mode, source)
    return kinds.get(mode.partition("/")[0], QuantizedDTypePolicy)(mode, source)


class DTypePolicyMap(DTypePolicy, MutableMapping[str, DTypePolicy]):
    """A policy for each layer path, and a default for all others.

    Args:
        default_policy: the policy of layers that are not named (None: the process's).
        policy_map: layer path -> policy or its name; None: an empty one.

    Example:
        >>> policies = DTypePolicyMap("float32", {"model/dense": "mixed_bfloat16"})
        >>> policies["model/dense"].compute_dtype, policies["model/other"].compute_dtype
        ('bfloat16', 'float32')
    """

    def __init__(
        self,
        default_policy: DTypePolicy | str | None = None,
        policy_map: Mapping[str, Any] | None = None,
    ) -> None:
        self.default_policy = get(default_policy)
        super().__init__(self.default_policy.name)
        if policy_map is not None and not isinstance(policy_map, Mapping):
            raise TypeError(
                "DTypePolicyMap: policy_map is a dict of layer paths and policies, got "
                f"{policy_map!r}."
            )
        self._map = {k: get(v) for k, v in (policy_map or {}).items()}

    def __getitem__(self, path: str) -> DTypePolicy:
        return self._map.get(path, self.default_policy)

    def __setitem__(self, path: str, policy: DTypePolicy) -> None:
        self._map[path] = get(policy)

    def __delitem__(self, path: str) -> None:
        del self._map[path]

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Any:
        return iter(self._map)

    def __repr__(self) -> str:
        mapping = [(path, policy.name) for path, policy in self._map.items()]
        return f"<DTypePolicyMap default_policy={self.default_policy.name!r}, mapping={mapping}>"

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"default_policy": self.default_policy, "policy_map": dict(self._map)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the map that `get_config` describes."""
        return cls(**{k: registry.deserialize_keras_object(v) for k, v in config.items()})


_chosen: list[DTypePolicy] = []


def dtype_policy() -> DTypePolicy:
    """Return the policy that new layers take.

    Example:
        >>> dtype_policy().name
        'float32'
    """
    return _chosen[0] if _chosen else DTypePolicy(config.floatx())


@hides_frames
def set_dtype_policy(policy: DTypePolicy | str) -> None:
    """Set the policy that new layers take: a name or a policy.

    Args:
        policy: a policy, or its name.

    Raises:
        ValueError: it is neither.

    Example:
        >>> before = dtype_policy()
        >>> set_dtype_policy("mixed_bfloat16")
        >>> dtype_policy().compute_dtype
        'bfloat16'
        >>> set_dtype_policy(before)
    """
    if policy is None:
        raise ValueError("set_dtype_policy: a policy or its name was expected, got None.")
    _chosen[:] = [get(policy)]


@hides_frames
def get(identifier: DTypePolicy | str | None) -> DTypePolicy:
    """Return the policy for None (the process's), a name, a dtype, a config or a policy.

    Args:
        identifier: a name, config, class, function or object; None gives None.

    Example:
        >>> get("mixed_bfloat16").compute_dtype
        'bfloat16'
    """
    if identifier is None:
        return dtype_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return registry.deserialize_keras_object(identifier)
    if isinstance(identifier, str):
        return _by_name(identifier)
    return DTypePolicy(dtypes.name_of(identifier))


def serialize(dtype_policy: DTypePolicy) -> Config:
    """Return the policy as what JSON can hold.

    Args:
        dtype_policy: a policy.

    Example:
        >>> serialize(get("float32"))["class_name"]
        'DTypePolicy'
    """
    return registry.serialize_keras_object(dtype_policy)


@hides_frames
def deserialize(config: Config, custom_objects: Mapping[str, Any] | None = None) -> DTypePolicy:
    """Return the policy that `serialize` was given.

    Args:
        config: what `serialize` returned.
        custom_objects: name -> class or function, for names that are not registered; None: none.

    Example:
        >>> deserialize(serialize(get("float32"))).name
        'float32'
    """
    return registry.deserialize_keras_object(config, custom_objects)


config.keep_dtype_policy(dtype_policy, set_dtype_policy)
registry.add_builtins("keras", {"DTypePolicy": DTypePolicy, "FloatDTypePolicy": DTypePolicy})
_OTHERS = (
    DTypePolicyMap, QuantizedDTypePolicy, QuantizedFloat8DTypePolicy, Int4DTypePolicy,
    GPTQDTypePolicy, AWQDTypePolicy,
)  # fmt: skip
registry.add_builtins("keras.dtype_policies", {cls.__name__: cls for cls in _OTHERS})
