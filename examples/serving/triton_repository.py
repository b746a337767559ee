"""Write a model into a model repository, as Triton and KServe read it.

    models/digits/config.pbtxt      names, types and sizes; how requests are batched
    models/digits/1/model.onnx      version 1

Start the server with `tritonserver --model-repository=models`, or let an InferenceService of KServe
point to the folder.
"""

import os

import onnx

_TYPES = {
    "FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16", "BOOL": "BOOL",
    "INT8": "INT8", "INT16": "INT16", "INT32": "INT32", "INT64": "INT64", "UINT8": "UINT8",
    "UINT16": "UINT16", "UINT32": "UINT32", "UINT64": "UINT64",
}  # fmt: skip


def port(value):
    """Return the entry of an input or output: its sizes without the batch axis, -1 if open."""
    tensor = value.type.tensor_type
    kind = _TYPES[onnx.TensorProto.DataType.Name(tensor.elem_type)]
    sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim[1:]]
    return f'{{ name: "{value.name}" data_type: TYPE_{kind} dims: {sizes} }}'


def write_repository(model, folder, name, version=1, max_batch_size=32, wait=2000):
    """Export a model into a repository.

    Args:
        model: a built model.
        folder: the repository; made where it is missing.
        name: what requests call the model.
        version: an integer, 1 or more; the server takes the highest.
        max_batch_size: rows that the server puts together at most.
        wait: microseconds that a request waits for others.
    """
    place = os.path.join(folder, name, str(version))
    os.makedirs(place, exist_ok=True)
    path = os.path.join(place, "model.onnx")
    model.export(path, verbose=False)
    graph = onnx.load(path, load_external_data=False).graph
    text = f"""name: "{name}"
platform: "onnxruntime_onnx"
max_batch_size: {max_batch_size}
input [ {", ".join(map(port, graph.input))} ]
output [ {", ".join(map(port, graph.output))} ]
dynamic_batching {{ max_queue_delay_microseconds: {wait} }}
"""
    with open(os.path.join(folder, name, "config.pbtxt"), "w", encoding="utf-8") as file:
        file.write(text)
