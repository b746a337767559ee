"""Config: named settings as attributes, which can be frozen."""

from __future__ import annotations

import json
from collections.abc import ItemsView, KeysView, ValuesView
from typing import TYPE_CHECKING, Any

from kerasish.errors import UnknownNameError
from kerasish.typing import Structure

if TYPE_CHECKING:
    pass


class Config:
    """Settings by name, as attributes or items; `freeze` makes them read-only.

    Args:
        kwargs: the settings.

    Example:
        >>> config = Config(units=4)
        >>> config.rate = 0.1
        >>> config.freeze().as_dict(), config["units"]
        ({'units': 4, 'rate': 0.1}, 4)
    """

    _settings: dict[str, Any]
    _frozen: bool

    def __init__(self, **kwargs: Any) -> None:
        object.__setattr__(self, "_settings", dict(kwargs))
        object.__setattr__(self, "_frozen", False)

    def _need_thawed(self) -> None:
        if self._frozen:
            raise ValueError("The config is frozen; call unfreeze() to change it.")

    @property
    def frozen(self) -> bool:
        """Whether the settings are read-only."""
        return self._frozen

    def freeze(self) -> Config:
        """Make the settings read-only."""
        object.__setattr__(self, "_frozen", True)
        return self

    def unfreeze(self) -> Config:
        """Make the settings writable again."""
        object.__setattr__(self, "_frozen", False)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._settings[name]
        except KeyError:
            known = UnknownNameError.of("setting", name, self._settings)
            raise AttributeError(str(known)) from None

    def __setattr__(self, name: str, value: float) -> None:
        self._need_thawed()
        self._settings[name] = value

    def __delattr__(self, name: str) -> None:
        self.pop(name)

    def __getitem__(self, name: str) -> int:
        return self._settings[name]

    def __setitem__(self, name: str, value: int) -> None:
        self._need_thawed()
        self._settings[name] = value

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __contains__(self, name: object) -> bool:
        return name in self._settings

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return f"<Config {self._settings!r}>"

    def get(self, name: str, default_value: Structure = None) -> Structure:
        """Return a setting, or the default if there is none."""
        return self._settings.get(name, default_value)

    def pop(self, *args: Any) -> float:
        """Remove a setting and return it, or the given default."""
        self._need_thawed()
        return self._settings.pop(*args)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set the settings in mappings and keyword arguments."""
        self._need_thawed()
        self._settings.update(*args, **kwargs)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._settings.keys()

    def values(self) -> ValuesView[Any]:
        """Return the values."""
        return self._settings.values()

    def items(self) -> ItemsView[str, Any]:
        """Return the pairs of names and values."""
        return self._settings.items()

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as a new dictionary."""
        return dict(self._settings)

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(self._settings)
