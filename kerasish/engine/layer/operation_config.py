"""How calls of ops appear in the config of a functional model: Keras's operation classes.

There an operation keeps its settings (axis, shape, ...) in its config, and a call holds the rest.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from kerasish import ops, registry
from kerasish.engine.layer.operation import OpCall
from kerasish.errors import UnknownNameError
from kerasish.ops.op import Op
from kerasish.tensor import Tensor

# module: Class(settings)
_CLASSES = {
    "numpy": """
        Abs Absolute Add All(axis,keepdims) AllClose(rtol,atol,equal_nan) Amax(axis,keepdims)
        Amin(axis,keepdims) Angle Any(axis,keepdims) Append(axis) Arange(dtype) Arccos Arccosh
        Arcsin Arcsinh Arctan Arctan2 Arctanh Argmax(axis,keepdims) Argmin(axis,keepdims)
        Argpartition(kth,axis) Argsort(axis) Array(dtype) ArraySplit(indices_or_sections,axis)
        Average(axis) Bincount(weights,minlength,sparse) BitwiseAnd BitwiseInvert
        BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor BroadcastTo(shape)
        Cbrt Ceil Clip(x_min,x_max) Concatenate(axis) Conj Conjugate Copy Corrcoef
        Correlate(mode) Cos Cosh CountNonzero(axis) Cross(axisa,axisb,axisc,axis)
        Cumprod(axis,dtype) Cumsum(axis,dtype) Deg2rad Diag(k) Diagflat(k)
        Diagonal(offset,axis1,axis2) Diff(n,axis) Digitize Divide DivideNoNan Dot
        Dsplit(indices_or_sections) Dstack Einsum(subscripts) EmptyLike(dtype) Equal Exp Exp2
        ExpandDims(axis) Expm1 Fabs Flip(axis) Fliplr Flipud Floor FloorDivide Fmax Fmin Fmod
        Full(shape,dtype) FullLike(dtype) Gcd Geomspace(num,endpoint,dtype,axis) GetItem
        Greater GreaterEqual Heaviside Histogram(bins,range) Hsplit(indices_or_sections)
        Hstack Hypot I0 Imag Inner IsIn(assume_unique,invert) Isclose(equal_nan) Isfinite
        Isinf Isnan Isneginf Isposinf Isreal Kron Lcm Ldexp LeftShift Less LessEqual
        Linspace(num,endpoint,retstep,dtype,axis) Log Log10 Log1p Log2 Logaddexp Logaddexp2
        LogicalAnd LogicalNot LogicalOr LogicalXor Logspace(num,endpoint,base,dtype,axis)
        Matmul Max(axis,keepdims,initial) Maximum Mean(axis,keepdims) Median(axis,keepdims)
        Meshgrid(indexing) Min(axis,keepdims,initial) Minimum Mod Moveaxis(source,destination)
        Multiply NanToNum(nan,posinf,neginf) Nanargmax(axis,keepdims) Nanargmin(axis,keepdims)
        Nancumprod(axis,dtype) Nancumsum(axis,dtype) Nanmax(axis,keepdims)
        Nanmean(axis,keepdims) Nanmedian(axis,keepdims) Nanmin(axis,keepdims)
        Nanpercentile(axis,method,keepdims) Nanprod(axis,keepdims)
        Nanquantile(axis,method,keepdims) Nanstd(axis,keepdims) Nansum(axis,keepdims)
        Nanvar(axis,keepdims) Ndim Negative Nextafter Nonzero NotEqual OnesLike(dtype) Outer
        Pad(pad_width,mode) Percentile(axis,method,keepdims) Power Prod(axis,keepdims,dtype)
        Ptp(axis,keepdims) Quantile(axis,method,keepdims) Rad2deg Ravel Real Reciprocal
        Repeat(repeats,axis) Reshape(newshape) RightShift Roll(shift,axis) Rot90(k,axes)
        Round(decimals) SearchSorted(side) Select Sign Signbit Sin Sinc Sinh Size Slogdet
        Sort(axis) Split(indices_or_sections,axis) Sqrt Square Squeeze(axis) Stack(axis)
        Std(axis,keepdims) Subtract Sum(axis,keepdims) Swapaxes(axis1,axis2) Take(axis)
        TakeAlongAxis(axis) Tan Tanh Tensordot(axes) Tile(repeats) Trace(offset,axis1,axis2)
        Transpose(axes) Trapezoid(x,dx,axis) Tril(k) Triu(k) TrueDivide Trunc
        Unique(sorted,return_index,return_inverse,return_counts,axis,size,fill_value)
        UnravelIndex(shape) Vander(N,increasing) Var(axis,keepdims) Vdot View(dtype)
        Vsplit(indices_or_sections) Vstack Where ZerosLike(dtype)
    """,
    "nn": """
        AdaptiveAveragePool(output_size,data_format) AdaptiveMaxPool(output_size,data_format)
        AveragePool(pool_size,strides,padding,data_format) BatchNorm(axis,epsilon)
        BinaryCrossentropy(from_logits)
        CTCDecode(strategy,beam_width,top_paths,merge_repeated,mask_index) CTCLoss(mask_index)
        CategoricalCrossentropy(from_logits,axis) Celu(alpha)
        Conv(strides,padding,data_format,dilation_rate)
        ConvTranspose(strides,padding,output_padding,data_format,dilation_rate)
        DepthToSpace(block_size,data_format)
        DepthwiseConv(strides,padding,data_format,dilation_rate)
        DotProductAttention(is_causal,flash_attention,attn_logits_soft_cap) Elu(alpha)
        Fold(output_size,kernel_size,dilation,padding,stride) Gelu(approximate) Glu(axis)
        HardShrink(threshold) HardSigmoid HardSilu HardTanh
        LayerNorm(axis,epsilon,rms_scaling) LeakyRelu(negative_slope) LogSigmoid
        LogSoftmax(axis) MaxPool(pool_size,strides,padding,data_format)
        Moments(axes,keepdims,synchronized) MultiHot(num_classes,axis,dtype,sparse)
        Normalize(axis,order,epsilon) OneHot(num_classes,axis,dtype,sparse) PSNR(max_val)
        Polar RMSNorm(axis,epsilon) Relu Relu6 Selu
        SeparableConv(strides,padding,data_format,dilation_rate) Sigmoid Silu
        SoftShrink(threshold) Softmax(axis) Softplus Softsign
        SpaceToDepth(block_size,data_format) SparseCategoricalCrossentropy(from_logits,axis)
        SparsePlus SparseSigmoid Sparsemax(axis) Squareplus(b) TanhShrink
        Threshold(threshold,default_value) Unfold(kernel_size,dilation,padding,stride)
    """,
    "core": """
        Cast(dtype) ConvertToTensor(dtype,sparse,ragged) SaturateCast(dtype) Scatter(shape)
        ScatterUpdate(reduction) Slice(shape) SliceUpdate StopGradient Unstack(num,axis)
    """,
    "math": """
        CDist Erf Erfc Erfinv ExtractSequences(sequence_length,sequence_stride) FFT FFT2 IFFT2
        IRFFT(fft_length)
        ISTFT(sequence_length,sequence_stride,fft_length,length,window,center) InTopK(k)
        Logdet Logsumexp(axis,keepdims) RFFT(fft_length) Rsqrt
        STFT(sequence_length,sequence_stride,fft_length,window,center)
        SegmentMax(num_segments,sorted) SegmentMin(num_segments,sorted)
        SegmentProd(num_segments,sorted) SegmentSum(num_segments,sorted) TopK(k,sorted)
        ViewAsComplex ViewAsReal
    """,
    "linalg": """
        Cholesky(upper) CholeskyInverse(upper) Det Eig Eigh Inv Lstsq(rcond) LuFactor
        MatrixRank(tol) Norm(ord,axis,keepdims) Pinv(rcond) Qr(mode)
        SVD(full_matrices,compute_uv) Solve SolveTriangular(lower)
    """,
    "image": """
        AffineTransform(interpolation,fill_mode,fill_value,data_format)
        CropImages(top_cropping,left_cropping,bottom_cropping,right_cropping,target_height,target_width,data_format)
        ElasticTransform(alpha,sigma,interpolation,fill_mode,fill_value,seed,data_format)
        ExtractPatches(size,strides,dilation_rate,padding,data_format)
        GaussianBlur(kernel_size,sigma,data_format) HSVToRGB(data_format)
        MapCoordinates(order,fill_mode,fill_value)
        PadImages(top_padding,left_padding,bottom_padding,right_padding,target_height,target_width,data_format)
        PerspectiveTransform(interpolation,fill_value,data_format) RGBToGrayscale(data_format)
        RGBToHSV(data_format)
        Resize(size,interpolation,antialias,crop_to_aspect_ratio,pad_to_aspect_ratio,fill_mode,fill_value,data_format)
        SSIM(max_val,filter_size,filter_sigma,k1,k2,data_format)
        ScaleAndTranslate(spatial_dims,method,antialias) SobelEdges(data_format)
    """,
}
# Primitive ops whose own name differs from the class's.
_OTHER_NAMES = {
    "reduceall": "all", "reduceany": "any", "reducesum": "sum", "reducemax": "max",
    "reducemin": "min", "reduceprod": "prod", "selectfirst": "select", "leftshift":
    "bitwiseleftshift", "rightshift": "bitwiserightshift", "batchnormalization": "batchnorm",
    "layernormalization": "layernorm", "rmsnormalization": "rmsnorm",
}  # fmt: skip
_FUNCTIONS = {
    "batchnorm": "batch_normalization", "layernorm": "layer_normalization",
    "rmsnorm": "rms_normalization",
}  # fmt: skip

# Functions among the arguments of an op, as in associative_scan(ops.add, x), are found by name.
registry.BUILTINS["keras.ops"].update(
    {
        name: value
        for name, value in vars(ops).items()
        if callable(value) and not isinstance(value, type) and not name.startswith("_")
    }
)


@functools.lru_cache(maxsize=1)
def _known() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return key -> (module, class, names of its settings)."""
    results = {}
    for module, text in _CLASSES.items():
        for word in text.split():
            name, _, rest = word.partition("(")
            settings = tuple(rest.rstrip(")").split(",")) if rest else ()
            results[_key(name)] = (module, name, settings)
    return results


def _key(name: str) -> str:
    key = name.replace("_", "").lower()
    return _OTHER_NAMES.get(key, key)


def write_operation(operation: OpCall) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    """Return (settings, args, kwargs) of the operation's call."""
    node = operation.inbound_nodes[0]
    settings = _known().get(_key(operation.function.__name__), ("", "", ()))[2]
    if not settings:
        return {}, list(node.args), dict(node.kwargs)
    signature = inspect.signature(operation.function)
    bound = signature.bind(*node.args, **node.kwargs)
    config: dict[str, Any] = {}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if name in settings:
            config[name] = value
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif kind is inspect.Parameter.KEYWORD_ONLY:
            kwargs[name] = value
        else:
            args.append(value)
    return config, args, kwargs


def class_of(function: Callable[..., Any]) -> tuple[str, str]:
    """Return Keras's (module, class) for a function of `ops`."""
    name = function.__name__
    module, class_name, _ = _known().get(_key(name), ("numpy", _titled(name), ()))
    return f"keras.src.ops.{module}", class_name


def is_op_class(class_name: str) -> bool:
    """Return whether files use this class name for an op: Keras's, or one made of the op's name."""
    known = _known().get(_key(class_name))
    return class_name in _titled_names() if known is None else known[1] == class_name


@functools.lru_cache(maxsize=1)
def _titled_names() -> frozenset[str]:
    return frozenset(_titled(name) for name in registry.BUILTINS["keras.ops"])


def _titled(name: str) -> str:
    return "".join(part.title() for part in name.split("_"))


def is_short_op(entry: dict[str, Any]) -> bool:
    """Return whether an entry of the older format, without modules, is an operation."""
    # Add may be the layer or the op; only layers' configs say whether they are trainable.
    name, config = entry["class_name"], entry.get("config")
    if entry.get("module") or not isinstance(name, str) or not isinstance(config, dict):
        return False
    if "trainable" in config or name == "InputLayer":
        return False
    return is_op_class(name) and registry.get_registered_object(name) is None


def find_op(class_name: str) -> Op:
    """Return the function of `ops` for Keras's operation class."""
    key = _key(class_name)
    direct = getattr(ops, _FUNCTIONS.get(key, ""), None)
    if direct is not None:
        return direct
    for name in dir(ops):
        if name.replace("_", "").lower() == key:
            return getattr(ops, name)
    raise UnknownNameError.of("operation in the config", class_name, dir(ops))


def call_operation(
    operation: OpCall, settings: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
) -> Tensor:
    """Return the result of an operation for what its config and its call say."""
    if _key(operation.function.__name__) == "getitem" and len(args) > 1:
        args = [args[0], tuple(args[1]) if isinstance(args[1], list) else args[1], *args[2:]]
    if not settings:
        return operation(*args, **kwargs)
    given = list(args)
    leading: list[Any] = []
    named = {**settings, **kwargs}
    parameters = inspect.signature(operation.function).parameters
    for place, (name, parameter) in enumerate(parameters.items()):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return operation(*leading, *given, **named)
        if name in settings:
            if given and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                leading.append(named.pop(name))
            continue
        if given:
            if name in named:
                raise ValueError(f"The config gives {name!r} of {operation.name!r} twice.")
            if len(leading) == place:
                leading.append(given.pop(0))
            else:
                named[name] = given.pop(0)
    return operation(*leading, **named)
