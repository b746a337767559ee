"""The workloads in plain torch: modules and a hand-written loop, compiled where asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workloads import LEARNING_RATE, VOCABULARY, Workload


class ConvolveNorm(nn.Sequential):
    """A convolution without bias, and Keras's BatchNormalization."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01),
        )


class Block(nn.Module):
    """Two convolutions of a residual network, and what goes around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = ConvolveNorm(inputs, outputs, 3, stride)
        self.second = ConvolveNorm(outputs, outputs, 3, 1)
        self.shortcut = nn.Identity() if stride == 1 else ConvolveNorm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(functional.relu(self.first(x)))
        return functional.relu(y + self.shortcut(x))


class _LstmClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 128)
        self.lstm = nn.LSTM(128, 128, batch_first=True)
        self.head = nn.Linear(128, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, (last, _) = self.lstm(self.embedding(x))
        return self.head(last[0])


class _Encoder(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        parts = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = self.norm1(x + self.out(y.transpose(1, 2).reshape(rows, length, width)))
        return self.norm2(x + self.narrow(functional.relu(self.wide(x))))


class _Transformer(nn.Module):
    def __init__(
        self, length: int = 64, width: int = 128, heads: int = 4, hidden: int = 512, blocks: int = 2
    ) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Encoder(width, heads, hidden) for _ in range(blocks)))
        self.head = nn.Linear(width, 2)
        self.register_buffer("places", torch.arange(length))

    def forward(self, x: Tensor) -> Tensor:
        x = self.token(x) + self.position(self.places)
        return self.head(self.blocks(x).mean(dim=1))


def _dense_stack(*sizes: int) -> nn.Module:
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def _make_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(1600, 10),
    )  # fmt: skip


def _make_resnet20() -> nn.Module:
    parts: list[nn.Module] = [ConvolveNorm(3, 16, 3, 1), nn.ReLU()]
    inputs = 16
    for outputs in (16, 32, 64):
        for index in range(3):
            parts.append(Block(inputs, outputs, 2 if outputs > 16 and index == 0 else 1))
            inputs = outputs
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*parts)


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, narrow: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = ConvolveNorm(inputs, narrow, 1, 1)
        self.second = ConvolveNorm(narrow, narrow, 3, stride)
        self.third = ConvolveNorm(narrow, outputs, 1, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else ConvolveNorm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.second(functional.relu(self.first(x))))
        return functional.relu(self.third(y) + self.shortcut(x))


def make_resnet50(
    classes: int = 1000, depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64
) -> nn.Module:
    """ResNet-50, its stride in the 3x3 convolutions, as `gpu_workloads.build_resnet50` has it."""
    parts: list[nn.Module] = [
        ConvolveNorm(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1),
    ]  # fmt: skip
    inputs = width
    for stage, count in enumerate(depths):
        narrow = width << stage
        for index in range(count):
            stride = 2 if stage and not index else 1
            parts.append(_Bottleneck(inputs, narrow, 4 * narrow, stride))
            inputs = 4 * narrow
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*parts)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: _dense_stack(784, 512, 512, 10),
    "tiny": lambda: _dense_stack(20, 32, 32, 2),
    "cnn": _make_cnn,
    "resnet20": _make_resnet20,
    "lstm": _LstmClassifier,
    "transformer": _Transformer,
    "resnet50": make_resnet50,
    "resnet50-bf16": make_resnet50,
    "transformer512-bf16": lambda: _Transformer(256, 512, 8, 2048, 6),
}


class TorchRunner:
    """A plain loop: shuffle, gather, forward, backward, fused Adam, running loss and accuracy."""

    def __init__(self, api: str, device: str) -> None:
        self.device = "cuda" if device == "gpu" else "cpu"
        tf32 = os.environ.get("KERASISH_TF32", "0") not in ("", "0")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32

    def build(self, workload: Workload, x: np.ndarray, y: np.ndarray) -> None:
        """Make the model and the tensors that `run` trains on."""
        torch.manual_seed(1)
        if workload.name not in MODELS:
            from benchmarks import torch_larger

            MODELS.update(torch_larger.MODELS)
        self.model = MODELS[workload.name]().to(self.device)
        data = torch.from_numpy(x)
        if data.ndim == 4:  # channels_last memory: a fifth faster on resnet20, the same on cnn
            data = data.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
            self.model = self.model.to(memory_format=torch.channels_last)
        self.x, self.y = data.to(self.device), torch.from_numpy(y).long().to(self.device)
        compiled = os.environ.get("KERASISH_BENCHMARK_COMPILE") == "1"
        self.forward = torch.compile(self.model) if compiled else self.model
        self.batch, self.resident = workload.batch, workload.resident
        self.narrow = workload.policy == "mixed_bfloat16"
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE, fused=True)

    def run(self, steps: int) -> dict[str, float]:
        """Train `steps` steps in shuffled order."""
        return self._train(steps, shuffle=True)

    def run_batches(self, steps: int) -> dict[str, float]:
        """Train `steps` steps, batches sliced in order."""
        return self._train(steps, shuffle=False)

    def _train(self, steps: int, shuffle: bool) -> dict[str, float]:
        start = time.perf_counter()
        self.model.train()
        model, optimizer, batch = self.forward, self.optimizer, self.batch
        shuffle = shuffle and not self.resident
        order = torch.randperm(steps * batch, device=self.device) if shuffle else None
        total = torch.zeros((), device=self.device)
        right = torch.zeros((), device=self.device)
        for step in range(steps):
            place = step % 2 if self.resident else step
            low, high = place * batch, (place + 1) * batch
            rows: Any = slice(low, high) if order is None else order[low:high]
            x, y = self.x[rows], self.y[rows]
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device, torch.bfloat16, enabled=self.narrow):
                logits = model(x)
            logits = logits.float().flatten(0, -2)
            loss = functional.cross_entropy(logits, y.flatten())
            loss.backward()
            optimizer.step()
            total += loss.detach()
            right += (logits.detach().argmax(dim=1) == y.flatten()).float().mean()
        loss_mean, _ = float(total) / steps, float(right) / steps
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "call_seconds": seconds, "loss": loss_mean}

    def single_calls(self) -> dict[str, Callable[[], Any]]:
        """Ways to ask for one row's output, by name; each returns a NumPy array."""
        row = self.x[:1].cpu().numpy()

        def call() -> Any:
            self.model.eval()
            with torch.inference_mode():
                return self.model(torch.from_numpy(row).to(self.device)).cpu().numpy()

        return {"call": call}

    def count_parameters(self) -> int:
        """Number of trainable parameters (torch's LSTM keeps two biases, Keras's one)."""
        return sum(parameter.numel() for parameter in self.model.parameters())
