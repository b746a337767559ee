"""The larger workloads in plain torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.larger_workloads import ITEMS, MOBILENET, TOKENS
from benchmarks.torch_runner import Block, ConvolveNorm, make_resnet50
from benchmarks.workloads import VOCABULARY


def _norm(size: int) -> nn.Module:
    return nn.BatchNorm2d(size, eps=1e-3, momentum=0.01)


def _make_dense_norm(depth: int = 10, width: int = 512) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(depth):
        norm = nn.BatchNorm1d(width, eps=1e-3, momentum=0.01)
        parts += [nn.Linear(width, width, bias=False), norm, nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, 10))


def _make_mobilenet() -> nn.Module:
    parts: list[nn.Module] = [ConvolveNorm(3, 16, 3, 2), nn.ReLU()]
    inputs = 16
    for outputs, stride in MOBILENET:
        parts += [nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)]
        parts += [_norm(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False)]
        parts += [_norm(outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class _Encoder(nn.Module):
    """A block that normalizes first."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class _Gpt(nn.Module):
    def __init__(self, length: int = 128, width: int = 384, heads: int = 6, blocks: int = 6):
        super().__init__()
        self.token, self.position = nn.Embedding(TOKENS, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Encoder(width, heads, True) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, TOKENS)
        self.register_buffer("places", torch.arange(length))

    def forward(self, x: Tensor) -> Tensor:
        x = self.token(x) + self.position(self.places)
        return self.head(self.norm(self.blocks(x)))


class _Vit(nn.Module):
    def __init__(self, tokens: int = 144, patch: int = 8, width: int = 192, heads: int = 3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(_Encoder(width, heads, False) for _ in range(6)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 10)
        self.register_buffer("places", torch.arange(tokens))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position(self.places)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def _make_resnet18() -> nn.Module:
    parts: list[nn.Module] = [ConvolveNorm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        parts += [Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def _twice(inputs: int, outputs: int) -> nn.Module:
    first = nn.Conv2d(inputs, outputs, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())


class _Unet(nn.Module):
    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.down = nn.ModuleList(_twice(i, o) for i, o in ((3, 32), (32, 64), (64, 128)))
        self.bottom = _twice(128, 256)
        sizes = ((256, 128), (128, 64), (64, 32))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in sizes)
        self.joined = nn.ModuleList(_twice(i, o) for i, o in sizes)
        self.head = nn.Conv2d(32, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, joined in zip(self.up, self.joined):
            x = joined(torch.cat([kept.pop(), up(x)], dim=1))
        return self.head(x).permute(0, 2, 3, 1)


class _LstmLanguage(nn.Module):
    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(x))[0])


class _WideDeep(nn.Module):
    def __init__(self, columns: int = 8, width: int = 16) -> None:
        super().__init__()
        self.wide, self.linear = nn.Embedding(ITEMS, 2), nn.Linear(2 * columns, 2)
        self.table = nn.Embedding(ITEMS, width)
        sizes = (columns * width, 128, 64)
        hidden = [nn.Sequential(nn.Linear(i, o), nn.ReLU()) for i, o in zip(sizes, sizes[1:])]
        self.deep = nn.Sequential(*hidden, nn.Linear(64, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.wide(x).flatten(1)) + self.deep(self.table(x).flatten(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "dense-norm": _make_dense_norm,
    "mobilenet": _make_mobilenet,
    "gpt": _Gpt,
    "resnet18": _make_resnet18,
    "resnet50-96": lambda: make_resnet50(10),
    "unet": _Unet,
    "vit": _Vit,
    "lstm512": _LstmLanguage,
    "wide-deep": _WideDeep,
}
