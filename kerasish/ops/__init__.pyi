"""Written by docs/op_signatures.py: change the ops, not this file."""
from collections.abc import Sequence

from kerasish.ops import image as image
from kerasish.ops import linalg as linalg
from kerasish.ops import nn as nn
from kerasish.ops import numpy as numpy
from kerasish.ops.algebra.closeness import allclose as allclose
from kerasish.ops.algebra.closeness import isclose as isclose
from kerasish.ops.algebra.closeness import isneginf as isneginf
from kerasish.ops.algebra.closeness import isposinf as isposinf
from kerasish.ops.algebra.closeness import nan_to_num as nan_to_num
from kerasish.ops.algebra.decomposition import cholesky as cholesky
from kerasish.ops.algebra.decomposition import cholesky_inverse as cholesky_inverse
from kerasish.ops.algebra.decomposition import svd as svd
from kerasish.ops.algebra.norms import cdist as cdist
from kerasish.ops.algebra.norms import matrix_rank as matrix_rank
from kerasish.ops.algebra.norms import norm as norm
from kerasish.ops.algebra.solving import logdet as logdet
from kerasish.ops.algebra.solving import lstsq as lstsq
from kerasish.ops.algebra.solving import solve as solve
from kerasish.ops.algebra.solving import solve_triangular as solve_triangular
from kerasish.ops.algebra.special import array as array
from kerasish.ops.algebra.special import copy as copy
from kerasish.ops.algebra.special import deg2rad as deg2rad
from kerasish.ops.algebra.special import divide_no_nan as divide_no_nan
from kerasish.ops.algebra.special import exp2 as exp2
from kerasish.ops.algebra.special import fabs as fabs
from kerasish.ops.algebra.special import fmax as fmax
from kerasish.ops.algebra.special import fmin as fmin
from kerasish.ops.algebra.special import heaviside as heaviside
from kerasish.ops.algebra.special import hypot as hypot
from kerasish.ops.algebra.special import ldexp as ldexp
from kerasish.ops.algebra.special import logaddexp2 as logaddexp2
from kerasish.ops.algebra.special import rad2deg as rad2deg
from kerasish.ops.algebra.special import sinc as sinc
from kerasish.ops.arrays.complexes import angle as angle
from kerasish.ops.arrays.complexes import isreal as isreal
from kerasish.ops.arrays.complexes import polar as polar
from kerasish.ops.arrays.complexes import view as view
from kerasish.ops.arrays.complexes import view_as_complex as view_as_complex
from kerasish.ops.arrays.complexes import view_as_real as view_as_real
from kerasish.ops.arrays.contraction import cross as cross
from kerasish.ops.arrays.contraction import dot as dot
from kerasish.ops.arrays.contraction import inner as inner
from kerasish.ops.arrays.contraction import tensordot as tensordot
from kerasish.ops.arrays.contraction import vdot as vdot
from kerasish.ops.arrays.core import convert_to_numpy as convert_to_numpy
from kerasish.ops.arrays.core import convert_to_tensor as convert_to_tensor
from kerasish.ops.arrays.core import custom_gradient as custom_gradient
from kerasish.ops.arrays.core import dtype as dtype
from kerasish.ops.arrays.core import is_tensor as is_tensor
from kerasish.ops.arrays.core import jvp as jvp
from kerasish.ops.arrays.core import saturate_cast as saturate_cast
from kerasish.ops.arrays.einsum import einsum as einsum
from kerasish.ops.arrays.grids import diff as diff
from kerasish.ops.arrays.grids import geomspace as geomspace
from kerasish.ops.arrays.grids import linspace as linspace
from kerasish.ops.arrays.grids import logspace as logspace
from kerasish.ops.arrays.grids import meshgrid as meshgrid
from kerasish.ops.arrays.grids import trapezoid as trapezoid
from kerasish.ops.arrays.grids import unravel_index as unravel_index
from kerasish.ops.arrays.grids import vander as vander
from kerasish.ops.arrays.nans import nanargmax as nanargmax
from kerasish.ops.arrays.nans import nanargmin as nanargmin
from kerasish.ops.arrays.nans import nancumprod as nancumprod
from kerasish.ops.arrays.nans import nancumsum as nancumsum
from kerasish.ops.arrays.nans import nanmax as nanmax
from kerasish.ops.arrays.nans import nanmean as nanmean
from kerasish.ops.arrays.nans import nanmedian as nanmedian
from kerasish.ops.arrays.nans import nanmin as nanmin
from kerasish.ops.arrays.nans import nanpercentile as nanpercentile
from kerasish.ops.arrays.nans import nanprod as nanprod
from kerasish.ops.arrays.nans import nanquantile as nanquantile
from kerasish.ops.arrays.nans import nanstd as nanstd
from kerasish.ops.arrays.nans import nansum as nansum
from kerasish.ops.arrays.nans import nanvar as nanvar
from kerasish.ops.arrays.scatter import scatter as scatter
from kerasish.ops.arrays.scatter import scatter_update as scatter_update
from kerasish.ops.arrays.scatter import segment_max as segment_max
from kerasish.ops.arrays.scatter import segment_min as segment_min
from kerasish.ops.arrays.scatter import segment_prod as segment_prod
from kerasish.ops.arrays.scatter import segment_sum as segment_sum
from kerasish.ops.arrays.scatter import slice as slice
from kerasish.ops.arrays.scatter import slice_update as slice_update
from kerasish.ops.arrays.searching import argpartition as argpartition
from kerasish.ops.arrays.searching import digitize as digitize
from kerasish.ops.arrays.searching import isin as isin
from kerasish.ops.arrays.searching import nonzero as nonzero
from kerasish.ops.arrays.searching import select as select
from kerasish.ops.arrays.searching import unique as unique
from kerasish.ops.arrays.shaping import append as append
from kerasish.ops.arrays.shaping import array_split as array_split
from kerasish.ops.arrays.shaping import diag as diag
from kerasish.ops.arrays.shaping import diagflat as diagflat
from kerasish.ops.arrays.shaping import diagonal as diagonal
from kerasish.ops.arrays.shaping import dsplit as dsplit
from kerasish.ops.arrays.shaping import dstack as dstack
from kerasish.ops.arrays.shaping import fliplr as fliplr
from kerasish.ops.arrays.shaping import flipud as flipud
from kerasish.ops.arrays.shaping import hsplit as hsplit
from kerasish.ops.arrays.shaping import hstack as hstack
from kerasish.ops.arrays.shaping import kron as kron
from kerasish.ops.arrays.shaping import outer as outer
from kerasish.ops.arrays.shaping import rot90 as rot90
from kerasish.ops.arrays.shaping import trace as trace
from kerasish.ops.arrays.shaping import tril as tril
from kerasish.ops.arrays.shaping import triu as triu
from kerasish.ops.arrays.shaping import vsplit as vsplit
from kerasish.ops.arrays.shaping import vstack as vstack
from kerasish.ops.arrays.statistics import average as average
from kerasish.ops.arrays.statistics import bincount as bincount
from kerasish.ops.arrays.statistics import corrcoef as corrcoef
from kerasish.ops.arrays.statistics import correlate as correlate
from kerasish.ops.arrays.statistics import count_nonzero as count_nonzero
from kerasish.ops.arrays.statistics import histogram as histogram
from kerasish.ops.arrays.statistics import median as median
from kerasish.ops.arrays.statistics import percentile as percentile
from kerasish.ops.arrays.statistics import prod as prod
from kerasish.ops.arrays.statistics import ptp as ptp
from kerasish.ops.arrays.statistics import quantile as quantile
from kerasish.ops.arrays.vectorizing import vectorize as vectorize
from kerasish.ops.basic.activation import celu as celu
from kerasish.ops.basic.activation import elu as elu
from kerasish.ops.basic.activation import gelu as gelu
from kerasish.ops.basic.activation import glu as glu
from kerasish.ops.basic.activation import hard_shrink as hard_shrink
from kerasish.ops.basic.activation import hard_sigmoid as hard_sigmoid
from kerasish.ops.basic.activation import hard_silu as hard_silu
from kerasish.ops.basic.activation import hard_swish as hard_swish
from kerasish.ops.basic.activation import hard_tanh as hard_tanh
from kerasish.ops.basic.activation import leaky_relu as leaky_relu
from kerasish.ops.basic.activation import log_sigmoid as log_sigmoid
from kerasish.ops.basic.activation import log_softmax as log_softmax
from kerasish.ops.basic.activation import relu6 as relu6
from kerasish.ops.basic.activation import selu as selu
from kerasish.ops.basic.activation import silu as silu
from kerasish.ops.basic.activation import soft_shrink as soft_shrink
from kerasish.ops.basic.activation import softmax as softmax
from kerasish.ops.basic.activation import softsign as softsign
from kerasish.ops.basic.activation import sparse_plus as sparse_plus
from kerasish.ops.basic.activation import sparse_sigmoid as sparse_sigmoid
from kerasish.ops.basic.activation import sparsemax as sparsemax
from kerasish.ops.basic.activation import squareplus as squareplus
from kerasish.ops.basic.activation import swish as swish
from kerasish.ops.basic.activation import tanh_shrink as tanh_shrink
from kerasish.ops.basic.activation import threshold as threshold
from kerasish.ops.basic.control import associative_scan as associative_scan
from kerasish.ops.basic.control import cond as cond
from kerasish.ops.basic.control import fori_loop as fori_loop
from kerasish.ops.basic.control import map as map
from kerasish.ops.basic.control import scan as scan
from kerasish.ops.basic.control import switch as switch
from kerasish.ops.basic.control import vectorized_map as vectorized_map
from kerasish.ops.basic.control import while_loop as while_loop
from kerasish.ops.basic.conv import conv as conv
from kerasish.ops.basic.conv import conv_transpose as conv_transpose
from kerasish.ops.basic.conv import depthwise_conv as depthwise_conv
from kerasish.ops.basic.conv import separable_conv as separable_conv
from kerasish.ops.basic.creation import arange as arange
from kerasish.ops.basic.creation import empty as empty
from kerasish.ops.basic.creation import empty_like as empty_like
from kerasish.ops.basic.creation import eye as eye
from kerasish.ops.basic.creation import full as full
from kerasish.ops.basic.creation import full_like as full_like
from kerasish.ops.basic.creation import identity as identity
from kerasish.ops.basic.creation import ones as ones
from kerasish.ops.basic.creation import ones_like as ones_like
from kerasish.ops.basic.creation import tri as tri
from kerasish.ops.basic.creation import zeros as zeros
from kerasish.ops.basic.creation import zeros_like as zeros_like
from kerasish.ops.basic.pool import adaptive_average_pool as adaptive_average_pool
from kerasish.ops.basic.pool import adaptive_max_pool as adaptive_max_pool
from kerasish.ops.basic.pool import average_pool as average_pool
from kerasish.ops.basic.pool import max_pool as max_pool
from kerasish.ops.basic.printing import print as print
from kerasish.ops.basic.reshaping import expand_dims as expand_dims
from kerasish.ops.basic.reshaping import flip as flip
from kerasish.ops.basic.reshaping import moveaxis as moveaxis
from kerasish.ops.basic.reshaping import ndim as ndim
from kerasish.ops.basic.reshaping import pad as pad
from kerasish.ops.basic.reshaping import ravel as ravel
from kerasish.ops.basic.reshaping import repeat as repeat
from kerasish.ops.basic.reshaping import roll as roll
from kerasish.ops.basic.reshaping import shape as shape
from kerasish.ops.basic.reshaping import size as size
from kerasish.ops.basic.reshaping import split as split
from kerasish.ops.basic.reshaping import squeeze as squeeze
from kerasish.ops.basic.reshaping import stack as stack
from kerasish.ops.basic.reshaping import swapaxes as swapaxes
from kerasish.ops.basic.reshaping import tile as tile
from kerasish.ops.basic.selection import get_item as get_item
from kerasish.ops.basic.selection import one_hot as one_hot
from kerasish.ops.basic.selection import sort as sort
from kerasish.ops.basic.selection import take as take
from kerasish.ops.basic.selection import take_along_axis as take_along_axis
from kerasish.ops.basic.selection import top_k as top_k
from kerasish.ops.basic.selection import unstack as unstack
from kerasish.ops.basic.selection import where as where
from kerasish.ops.basic.statistics import amax as amax
from kerasish.ops.basic.statistics import amin as amin
from kerasish.ops.basic.statistics import clip as clip
from kerasish.ops.basic.statistics import cumprod as cumprod
from kerasish.ops.basic.statistics import cumsum as cumsum
from kerasish.ops.basic.statistics import logsumexp as logsumexp
from kerasish.ops.basic.statistics import max as max
from kerasish.ops.basic.statistics import mean as mean
from kerasish.ops.basic.statistics import min as min
from kerasish.ops.basic.statistics import round as round
from kerasish.ops.basic.statistics import std as std
from kerasish.ops.basic.statistics import var as var
from kerasish.ops.images.patches import depth_to_space as depth_to_space
from kerasish.ops.images.patches import fold as fold
from kerasish.ops.images.patches import rearrange as rearrange
from kerasish.ops.images.patches import space_to_depth as space_to_depth
from kerasish.ops.images.patches import unfold as unfold
from kerasish.ops.networks.crf import crf_decode as crf_decode
from kerasish.ops.networks.crf import crf_log_likelihood as crf_log_likelihood
from kerasish.ops.networks.crf import crf_log_norm as crf_log_norm
from kerasish.ops.networks.crf import crf_score as crf_score
from kerasish.ops.networks.crossentropy import binary_crossentropy as binary_crossentropy
from kerasish.ops.networks.crossentropy import categorical_crossentropy as categorical_crossentropy
from kerasish.ops.networks.crossentropy import in_top_k as in_top_k
from kerasish.ops.networks.crossentropy import multi_hot as multi_hot
from kerasish.ops.networks.crossentropy import psnr as psnr
from kerasish.ops.networks.crossentropy import sparse_categorical_crossentropy as sparse_categorical_crossentropy
from kerasish.ops.networks.ctc import ctc_decode as ctc_decode
from kerasish.ops.networks.ctc import ctc_loss as ctc_loss
from kerasish.ops.networks.normalization import batch_normalization as batch_normalization
from kerasish.ops.networks.normalization import dot_product_attention as dot_product_attention
from kerasish.ops.networks.normalization import layer_normalization as layer_normalization
from kerasish.ops.networks.normalization import moments as moments
from kerasish.ops.networks.normalization import normalize as normalize
from kerasish.ops.networks.normalization import rms_normalization as rms_normalization
from kerasish.ops.signals.signal import extract_sequences as extract_sequences
from kerasish.ops.signals.signal import fft as fft
from kerasish.ops.signals.signal import fft2 as fft2
from kerasish.ops.signals.signal import ifft2 as ifft2
from kerasish.ops.signals.signal import irfft as irfft
from kerasish.ops.signals.signal import istft as istft
from kerasish.ops.signals.signal import rfft as rfft
from kerasish.ops.signals.signal import stft as stft
from kerasish.ops.signals.tapers import bartlett as bartlett
from kerasish.ops.signals.tapers import blackman as blackman
from kerasish.ops.signals.tapers import hamming as hamming
from kerasish.ops.signals.tapers import hanning as hanning
from kerasish.ops.signals.tapers import kaiser as kaiser
from kerasish.tensor import Tensor
from kerasish.typing import Axis, DTypeLike, ScalarLike, ShapeLike, TensorLike

def abs(x: TensorLike) -> Tensor: ...
def absolute(x: TensorLike) -> Tensor: ...
def add(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def all(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor: ...
def all_gather(x: TensorLike, size: int) -> Tensor: ...
def all_sum(x: TensorLike) -> Tensor: ...
def any(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor: ...
def arccos(x: TensorLike) -> Tensor: ...
def arccosh(x: TensorLike) -> Tensor: ...
def arcsin(x: TensorLike) -> Tensor: ...
def arcsinh(x: TensorLike) -> Tensor: ...
def arctan(x: TensorLike) -> Tensor: ...
def arctan2(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def arctanh(x: TensorLike) -> Tensor: ...
def argmax(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor: ...
def argmin(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor: ...
def argsort(x: TensorLike, axis: Axis = -1) -> Tensor: ...
def bitwise_and(x: TensorLike, y: TensorLike) -> Tensor: ...
def bitwise_invert(x: TensorLike) -> Tensor: ...
def bitwise_left_shift(x: TensorLike, y: TensorLike) -> Tensor: ...
def bitwise_not(x: TensorLike) -> Tensor: ...
def bitwise_or(x: TensorLike, y: TensorLike) -> Tensor: ...
def bitwise_right_shift(x: TensorLike, y: TensorLike) -> Tensor: ...
def bitwise_xor(x: TensorLike, y: TensorLike) -> Tensor: ...
def broadcast_to(x: TensorLike, shape: ShapeLike) -> Tensor: ...
def cast(x: TensorLike, dtype: DTypeLike) -> Tensor: ...
def cbrt(x: TensorLike) -> Tensor: ...
def ceil(x: TensorLike) -> Tensor: ...
def concatenate(xs: Sequence[TensorLike], axis: Axis = 0) -> Tensor: ...
def conj(x: TensorLike) -> Tensor: ...
def conjugate(x: TensorLike) -> Tensor: ...
def cos(x: TensorLike) -> Tensor: ...
def cosh(x: TensorLike) -> Tensor: ...
def det(x: TensorLike) -> Tensor: ...
def divide(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def eig(x: TensorLike) -> tuple[Tensor, Tensor]: ...
def eigh(x: TensorLike) -> tuple[Tensor, Tensor]: ...
def equal(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def erf(x: TensorLike) -> Tensor: ...
def erfc(x: TensorLike) -> Tensor: ...
def erfinv(x: TensorLike) -> Tensor: ...
def exp(x: TensorLike) -> Tensor: ...
def expm1(x: TensorLike) -> Tensor: ...
def floor(x: TensorLike) -> Tensor: ...
def floor_divide(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def fmod(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def gcd(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def greater(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def greater_equal(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def gru(x: TensorLike, recurrent: TensorLike, bias: TensorLike, h: TensorLike, mask: TensorLike | None = None) -> tuple[Tensor, Tensor]: ...
def i0(x: TensorLike) -> Tensor: ...
def imag(x: TensorLike) -> Tensor: ...
def inv(x: TensorLike) -> Tensor: ...
def isfinite(x: TensorLike) -> Tensor: ...
def isinf(x: TensorLike) -> Tensor: ...
def isnan(x: TensorLike) -> Tensor: ...
def lcm(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def left_shift(x: TensorLike, y: TensorLike) -> Tensor: ...
def less(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def less_equal(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def log(x: TensorLike) -> Tensor: ...
def log10(x: TensorLike) -> Tensor: ...
def log1p(x: TensorLike) -> Tensor: ...
def log2(x: TensorLike) -> Tensor: ...
def logaddexp(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def logical_and(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def logical_not(x: TensorLike) -> Tensor: ...
def logical_or(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def logical_xor(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def lstm(x: TensorLike, recurrent: TensorLike, h: TensorLike, c: TensorLike, mask: TensorLike | None = None) -> tuple[Tensor, Tensor, Tensor]: ...
def lu_factor(x: TensorLike) -> tuple[Tensor, Tensor]: ...
def matmul(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def maximum(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def minimum(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def mod(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def multiply(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def negative(x: TensorLike) -> Tensor: ...
def nextafter(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def not_equal(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def pinv(x: TensorLike, rcond: ScalarLike | None = None) -> Tensor: ...
def power(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def qr(x: TensorLike, mode: str = 'reduced') -> tuple[Tensor, Tensor]: ...
def real(x: TensorLike) -> Tensor: ...
def reciprocal(x: TensorLike) -> Tensor: ...
def relu(x: TensorLike) -> Tensor: ...
def reshape(x: TensorLike, newshape: ShapeLike) -> Tensor: ...
def right_shift(x: TensorLike, y: TensorLike) -> Tensor: ...
def rsqrt(x: TensorLike) -> Tensor: ...
def searchsorted(sorted_sequence: TensorLike, values: TensorLike, side: str = 'left') -> Tensor: ...
def sigmoid(x: TensorLike) -> Tensor: ...
def sign(x: TensorLike) -> Tensor: ...
def signbit(x: TensorLike) -> Tensor: ...
def simple_rnn(x: TensorLike, recurrent: TensorLike, h: TensorLike, mask: TensorLike | None = None) -> Tensor: ...
def sin(x: TensorLike) -> Tensor: ...
def sinh(x: TensorLike) -> Tensor: ...
def slogdet(x: TensorLike) -> tuple[Tensor, Tensor]: ...
def softplus(x: TensorLike) -> Tensor: ...
def sqrt(x: TensorLike) -> Tensor: ...
def square(x: TensorLike) -> Tensor: ...
def stop_gradient(variable: TensorLike) -> Tensor: ...
def subtract(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def sum(x: TensorLike, axis: Axis | None = None, keepdims: bool = False) -> Tensor: ...
def tan(x: TensorLike) -> Tensor: ...
def tanh(x: TensorLike) -> Tensor: ...
def transpose(x: TensorLike, axes: Axis | None = None) -> Tensor: ...
def true_divide(x1: TensorLike, x2: TensorLike) -> Tensor: ...
def trunc(x: TensorLike) -> Tensor: ...
