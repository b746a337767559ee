"""Which dtype a layer computes in, and which its variables have."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from kerasish import config, registry
from kerasish.ops import dtypes
from kerasish.typing import Config, Structure
from kerasish.unsupported import explain

if TYPE_CHECKING:
    from typing_extensions import Self


class DTypePolicy:
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
    def quantization_mode(self) -> None:
        """Always None: kerasish does not quantize."""
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

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the policy that `get_config` describes."""
        return cls(**config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DTypePolicy) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f'<DTypePolicy "{self._name}">'


FloatDTypePolicy = DTypePolicy


class DTypePolicyMap(DTypePolicy, MutableMapping[str, DTypePolicy]):
    """A policy for each layer path, and a default for all others.

    Args:
        default_policy: the policy of layers that are not named (None: the process's).
        policy_map: layer path -> policy or its name.

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
        return DTypePolicy(identifier)
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
registry.add_builtins("keras.dtype_policies", {"DTypePolicyMap": DTypePolicyMap})

if not TYPE_CHECKING:  # checkers report names that are not there
    __getattr__ = explain(__name__)
