"""oneDNN on raw addresses: the matmuls, convolutions, poolings and reorders of a compiled step.

Creation (milliseconds the first time, then cached by sizes; thread-safe):

    matmul(a_shape, b_shape, *, a_strides, b_strides, out_strides, transpose_a, transpose_b, dtype,
           out_dtype, bias, post, b_layout, threads)                      "a" "b" "bias" "out"
    Geometry(x_shape, filters, kernel, strides, dilations, padding, groups)
    convolution(geometry, *, dtype, bias, post, threads)                  "x" "weights" "bias" "y"
    convolution_data_gradient(geometry, *, dtype, threads)                "dy" "weights" "dx"
    convolution_weights_gradient(geometry, *, dtype, threads)             "x" "dy" "dweights"
    pooling_geometry(x_shape, window, strides, padding)
    pool_forward(kind, geometry, *, dtype, training, threads)             "x" "y" "workspace"
    pool_backward(kind, geometry, *, dtype, threads)                      "dy" "dx" "workspace"
    reorder(source, destination)                                          "source" "destination"

Each returns a Primitive: `arguments` {name: Layout}, `required` {name: Layout} of those whose
layout the primitive chose, `scratchpad_bytes`, `workspace`, `implementation`, `is_reference`,
`threads`, `flops`. An argument "scratchpad" and "post<i>" join where needed; `arguments` lists all.

Running: `primitive.bind({name: Buffer(address, nbytes)})` gives a Binding: `.block` for the driver,
`Record(runtime.call_dnnl, binding.block, primitive.name)`; `.rebind(name, buffer)`; `.execute()`
from Python; `.threads`, which OpenMP must be set to before (`Record(runtime.call_threads,
threads_block(n))`, if two neighbors differ); `.check_process()`, which raises after a fork.

Layouts: `strided(dims, strides, dtype)`, `channels_last(shape, dtype)`, `vector(n, dtype)`,
`plain_weights(geometry, dtype)`; if `a == b`, no reorder is needed. A chosen layout
of weights, step by step:

    forward = convolution(g)
    plain, chosen = plain_weights(g), forward.arguments["weights"]
    if chosen != plain:
        to_chosen = reorder(plain, chosen)                    # a buffer of chosen.nbytes between

Errors: ValueError for invalid arguments; Unsupported (an OneDnnError) if oneDNN has no kernel on
this processor, such as bfloat16 on AVX2; otherwise OneDnnError. All name the primitive and shapes.
`available()` is "" or the reason why there is no oneDNN here.

What a run costs (AVX2, one thread): 0.6 us for dnnl_primitive_execute and the smallest matmul, 1.3
us for 32x20x32, 7.6 us for the five matmuls of a small MLP's step; a region of two threads 2 to
4 us. So the functions above use one thread per 500,000 floating-point operations, at least one.
"""

from kerasish.backends.onednn.convolution import Geometry as Geometry
from kerasish.backends.onednn.convolution import convolution as convolution
from kerasish.backends.onednn.convolution import (
    convolution_data_gradient as convolution_data_gradient,
)
from kerasish.backends.onednn.convolution import (
    convolution_weights_gradient as convolution_weights_gradient,
)
from kerasish.backends.onednn.convolution import plain_weights as plain_weights
from kerasish.backends.onednn.layout import Layout as Layout
from kerasish.backends.onednn.layout import channels_last as channels_last
from kerasish.backends.onednn.layout import strided as strided
from kerasish.backends.onednn.layout import vector as vector
from kerasish.backends.onednn.library import OneDnnError as OneDnnError
from kerasish.backends.onednn.library import Unsupported as Unsupported
from kerasish.backends.onednn.matmul import matmul as matmul
from kerasish.backends.onednn.native import available as available
from kerasish.backends.onednn.pooling import pool_backward as pool_backward
from kerasish.backends.onednn.pooling import pool_forward as pool_forward
from kerasish.backends.onednn.pooling import pooling_geometry as pooling_geometry
from kerasish.backends.onednn.primitive import Binding as Binding
from kerasish.backends.onednn.primitive import Buffer as Buffer
from kerasish.backends.onednn.primitive import ExecuteArguments as ExecuteArguments
from kerasish.backends.onednn.primitive import Primitive as Primitive
from kerasish.backends.onednn.primitive import clear_cache as clear_cache
from kerasish.backends.onednn.primitive import threads_block as threads_block
from kerasish.backends.onednn.reorder import reorder as reorder
