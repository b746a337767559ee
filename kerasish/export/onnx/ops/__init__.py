"""How each op is said in ONNX: one file per family of ops."""

from kerasish.export.onnx.ops import attention as attention
from kerasish.export.onnx.ops import control as control
from kerasish.export.onnx.ops import elementwise as elementwise
from kerasish.export.onnx.ops import functions as functions
from kerasish.export.onnx.ops import indexing as indexing
from kerasish.export.onnx.ops import integers as integers
from kerasish.export.onnx.ops import lookup as lookup
from kerasish.export.onnx.ops import movement as movement
from kerasish.export.onnx.ops import product as product
from kerasish.export.onnx.ops import quantized as quantized
from kerasish.export.onnx.ops import recurrent as recurrent
from kerasish.export.onnx.ops import reduce as reduce
from kerasish.export.onnx.ops import special as special
from kerasish.export.onnx.ops import window as window
