"""Bounds of an ONNX file, checked on its bytes before the protobuf library builds objects.

A message of two bytes costs some hundred bytes as an object, and messages nest. So the fields are
counted first: a file that holds too many, or nests too deeply, is refused.
"""

from __future__ import annotations

MOST_FIELDS = 3_000_000
DEEPEST = 60
# Message type -> field number -> the message type inside it; other fields are not looked into.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 8: "leaf", 14: "leaf", 25: "function"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value", 13: "value", 14: "leaf"},
    "function": {7: "node", 9: "leaf", 11: "attribute", 12: "value"},
    "node": {5: "attribute", 9: "leaf"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 14: "type", 15: "type"},
    "tensor": {13: "leaf", 14: "leaf"},
    "value": {2: "type"},
    "type": {1: "type", 2: "shape", 4: "type", 5: "type", 8: "type", 9: "type"},
    "shape": {1: "leaf"},
    "leaf": {},
}


def check_bounds(data: bytes) -> None:
    """Raise if a file's content has too many fields.

    Raises:
        ValueError: it is no sequence of protobuf fields, holds too many, or nests too deeply.
    """
    _Scan(data).message(0, len(data), "model", 0)


class _Scan:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.fields = 0

    def message(self, at: int, end: int, kind: str, depth: int) -> None:
        if depth > DEEPEST:
            raise ValueError(f"messages nest more than {DEEPEST} deep")
        inside = _INSIDE[kind]
        while at < end:
            self.fields += 1
            if self.fields > MOST_FIELDS:
                raise ValueError(f"it holds more than {MOST_FIELDS:,} fields")
            tag, at = self.varint(at, end)
            wire = tag & 7
            if wire == 0:
                _, at = self.varint(at, end)
            elif wire == 1:
                at += 8
            elif wire == 5:
                at += 4
            elif wire == 2:
                size, at = self.varint(at, end)
                if size > end - at:
                    raise ValueError("a field is longer than the file")
                if tag >> 3 in inside:
                    self.message(at, at + size, inside[tag >> 3], depth + 1)
                at += size
            else:
                raise ValueError("its bytes are no protobuf fields")
        if at != end:
            raise ValueError("a field is longer than its message")

    def varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise ValueError("a number is cut off")
