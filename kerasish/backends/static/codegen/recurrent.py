"""The loops of recurrent cells: gates and states of one time step, forward and backward.

The gates are adjacent columns of one matrix (Keras's order: LSTM i, f, c, o; GRU z, r, h). Each is
an operand at its own column offset with the row stride of the matrix: for `z` of (n, 4 * units),
gate k is `Operand(z.ctypes.data + 4 * units * k, (4 * units,))`, columns = units. Gate outputs may
overwrite gate inputs. `masked` adds an input, a bool (or a number, `mask_dtype`) per row: where it
is false (or 0), states are unchanged. `sequence` adapts a kernel to complete sequences: the
incoming gradients of a step's results are further inputs, and values that only the backward pass
needs are written where its product reads them.
"""

from __future__ import annotations

from kerasish.backends.static.codegen.description import Kernel, KernelBuilder, Symbol


def _inputs(k: KernelBuilder, count: int, dtype: str) -> list[Symbol]:
    return [k.input(dtype) for _ in range(count)]


def _step_mask(k: KernelBuilder, masked: bool, dtype: str = "bool") -> Symbol | None:
    if not masked:
        return None
    mask = k.input(dtype, level="row")
    return mask if dtype == "bool" else k.op("not_equal", mask, 0.0)


def _keep(k: KernelBuilder, mask: Symbol | None, new: Symbol, old: Symbol | float) -> Symbol:
    return new if mask is None else k.op("select", mask, new, old)


def lstm_forward(dtype: str = "float32", masked: bool = False, mask_dtype: str = "bool") -> Kernel:
    """c' = f c + i g, h' = o tanh(c') from z = x W + h U + b.

    Inputs: z_i, z_f, z_c, z_o, c (with `masked`: h, mask). Outputs: i, f, g, o, c', h'.
    Source: Hochreiter and Schmidhuber, Neural Computation 1997; Gers et al. 2000.
    """
    k = KernelBuilder()
    zi, zf, zc, zo, c = _inputs(k, 5, dtype)
    h = k.input(dtype) if masked else None
    mask = _step_mask(k, masked, mask_dtype)
    i, f, o = (k.op("sigmoid", z) for z in (zi, zf, zo))
    g = k.op("tanh", zc)
    new_c = f * c + i * g
    new_h = o * k.op("tanh", new_c)
    for gate, place in ((i, zi), (f, zf), (g, zc), (o, zo)):
        k.output(gate, dtype, in_place=place)
    k.output(_keep(k, mask, new_c, c), dtype)
    k.output(new_h if h is None else _keep(k, mask, new_h, h), dtype)
    return k.build()


def lstm_backward(
    dtype: str = "float32", masked: bool = False, mask_dtype: str = "bool", sequence: bool = False
) -> Kernel:
    """The gradients of `lstm_forward`.

    Inputs: i, f, g, o, c (before the step), c', dh', dc' (with `sequence`: the incoming gradients
    of h' and c'; with `masked`: mask). Outputs: dz_i, dz_f, dz_c, dz_o, dc (with `masked`: the part
    of dh' that bypasses the step and goes to dh).
    """
    k = KernelBuilder()
    i, f, g, o, c, new_c, dh, dc = _inputs(k, 8, dtype)
    arriving = _inputs(k, 2, dtype) if sequence else []
    mask = _step_mask(k, masked, mask_dtype)
    if sequence:
        dh, dc = dh + arriving[0], dc + arriving[1]
    t = k.op("tanh", new_c)
    through = dc + dh * o * (1.0 - t * t)
    gradients = (
        (through * g * i * (1.0 - i), i),
        (through * c * f * (1.0 - f), f),
        (through * i * (1.0 - g * g), g),
        (dh * t * o * (1.0 - o), o),
    )
    for gradient, place in gradients:
        k.output(_keep(k, mask, gradient, 0.0), dtype, in_place=place)
    k.output(_keep(k, mask, through * f, dc), dtype)
    if mask is not None:
        k.output(k.op("select", mask, 0.0 * dh, dh), dtype)
    return k.build()


def gru_forward(
    dtype: str = "float32", masked: bool = False, mask_dtype: str = "bool", sequence: bool = False
) -> Kernel:
    """h' = z h + (1 - z) n with n = tanh(x_h + r h_h) (Keras's reset_after=True).

    Inputs: x_z, x_r, x_h (x W + b), h_z, h_r, h_h (h U + c), h (with `masked`: mask). Outputs: z,
    r, n (with `sequence`: h_h), h'.
    Source: Cho et al., EMNLP 2014, in cuDNN's variant.
    """
    k = KernelBuilder()
    xz, xr, xh, hz, hr, hh, h = _inputs(k, 7, dtype)
    mask = _step_mask(k, masked, mask_dtype)
    z, r = k.op("sigmoid", xz + hz), k.op("sigmoid", xr + hr)
    n = k.op("tanh", xh + r * hh)
    for gate in (z, r, n, hh) if sequence else (z, r, n):
        k.output(gate, dtype)
    k.output(_keep(k, mask, n + z * (h - n), h), dtype)
    return k.build()


def gru_backward(
    dtype: str = "float32", masked: bool = False, mask_dtype: str = "bool", sequence: bool = False
) -> Kernel:
    """The gradients of `gru_forward`.

    Inputs: z, r, n, h_h, h, dh' (with `sequence`: the incoming gradient of h'; with `masked`:
    mask). Outputs: dz, dr (the same for x and h), dx_h (with `sequence`: dz and dr again), dh_h,
    and the part of dh' that is added to dh in addition to dz U', dr U', dh_h U'.
    """
    k = KernelBuilder()
    z, r, n, hh, h, dh = _inputs(k, 6, dtype)
    arriving = _inputs(k, 1, dtype) if sequence else []
    mask = _step_mask(k, masked, mask_dtype)
    if sequence:
        dh = dh + arriving[0]
    dn = dh * (1.0 - z) * (1.0 - n * n)
    gradients = (dh * (h - n) * z * (1.0 - z), dn * hh * r * (1.0 - r), dn, dn * r)
    kept = [_keep(k, mask, gradient, 0.0) for gradient in gradients]
    for gradient in (*kept[:3], *kept[:2], kept[3]) if sequence else kept:
        k.output(gradient, dtype)
    k.output(_keep(k, mask, dh * z, dh), dtype)
    return k.build()


def simple_forward(
    dtype: str = "float32",
    activation: str = "tanh",
    masked: bool = False,
    mask_dtype: str = "bool",
) -> Kernel:
    """h' = activation(z). Input: z (with `masked`: h, mask). Output: h'."""
    k = KernelBuilder()
    z = k.input(dtype)
    h = k.input(dtype) if masked else None
    mask = _step_mask(k, masked, mask_dtype)
    new = k.op(activation, z)
    k.output(new if h is None else _keep(k, mask, new, h), dtype, in_place=z)
    return k.build()


def simple_backward(
    dtype: str = "float32", masked: bool = False, mask_dtype: str = "bool", sequence: bool = False
) -> Kernel:
    """dz = dh' (1 - h'**2).

    Inputs: h', dh' (with `sequence`: the incoming gradient of h'; with `masked`: mask). Outputs: dz
    (with `masked`: the part of dh' that bypasses the step and goes to dh).
    """
    k = KernelBuilder()
    h, dh = _inputs(k, 2, dtype)
    arriving = _inputs(k, 1, dtype) if sequence else []
    mask = _step_mask(k, masked, mask_dtype)
    if sequence:
        dh = dh + arriving[0]
    k.output(_keep(k, mask, dh * (1.0 - h * h), 0.0), dtype)
    if mask is not None:
        k.output(k.op("select", mask, 0.0 * dh, dh), dtype)
    return k.build()
