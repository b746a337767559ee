"""The ONNX operators that are read: one file per family."""

from kerasish.export.onnx.reading.ops import arithmetic as arithmetic
from kerasish.export.onnx.reading.ops import attention as attention
from kerasish.export.onnx.reading.ops import control as control
from kerasish.export.onnx.reading.ops import indexing as indexing
from kerasish.export.onnx.reading.ops import labels as labels
from kerasish.export.onnx.reading.ops import norms as norms
from kerasish.export.onnx.reading.ops import pictures as pictures
from kerasish.export.onnx.reading.ops import quantized as quantized
from kerasish.export.onnx.reading.ops import recurrent as recurrent
from kerasish.export.onnx.reading.ops import reduce as reduce
from kerasish.export.onnx.reading.ops import shapes as shapes
from kerasish.export.onnx.reading.ops import windows as windows
