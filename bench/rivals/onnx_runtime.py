"""ONNX Runtime: the contributed operators MultiHeadAttention and GroupQueryAttention (which turns queries and keys
itself), and ONNX's own Attention, alone and behind RotaryEmbedding."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from rivals import operands as operand

OPSETS = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32}


def session(nodes, inputs, outputs, threads):
    """(run, result) of a graph; arrays `inputs` by name, of which it reads the memory, and shapes `outputs` by name."""
    def described(arrays):
        return [helper.make_tensor_value_info(name, TYPES[x.dtype], x.shape) for name, x in arrays.items()]

    results = {name: operand.at_a_page(np.zeros(extents, np.float32)) for name, extents in outputs.items()}
    graph = helper.make_graph(nodes, "attention", described(inputs), described(results))
    model = helper.make_model(graph, opset_imports=OPSETS, ir_version=11)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Else its threads spin on after a run, on the CPUs of whoever is next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    runner = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = runner.io_binding()
    for name, x in inputs.items():
        binding.bind_input(name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    for name, x in results.items():
        binding.bind_output(name, "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    first = next(iter(results.values()))

    def run(keep=(inputs, results)):
        runner.run_with_iobinding(binding)

    return run, lambda: first


def rivals(shape, operands, threads):
    n, d, heads, kv_heads = shape.tokens, shape.head_dim, shape.heads, shape.kv_heads

    def by_token(x):
        """[heads, tokens, channels] as [1, tokens, heads · channels]."""
        return operand.at_a_page(np.swapaxes(x, 0, 1).reshape(1, n, -1))

    def by_head(result):
        return lambda: np.swapaxes(result().reshape(n, heads, d), 0, 1)

    def multi_head():
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=heads,
                                unidirectional=int(shape.causal))
        inputs = {"q": by_token(operands.q), "k": by_token(operand.wide(shape, operands.k)),
                  "v": by_token(operand.wide(shape, operands.v))}
        run, result = session([node], inputs, {"y": (1, n, heads * d)}, threads)
        return run, by_head(result)

    def group_query():
        """A prompt: no past. It has no other mask than the causal one."""
        node = helper.make_node("GroupQueryAttention", ["q", "k", "v", "", "", "last", "total", "cos", "sin"],
                                ["y", "new_k", "new_v"], domain="com.microsoft", num_heads=heads, kv_num_heads=kv_heads,
                                do_rotary=1)
        inputs = {"q": by_token(operands.q), "k": by_token(operands.k), "v": by_token(operands.v),
                  "last": np.array([n - 1], np.int32), "total": np.array([n], np.int32), "cos": operands.cos,
                  "sin": operands.sin}
        cache = (1, kv_heads, n, d)
        run, result = session([node], inputs, {"y": (1, n, heads * d), "new_k": cache, "new_v": cache}, threads)
        return run, by_head(result)

    def attention(*nodes, q="q", k="k", **tables):
        node = helper.make_node("Attention", [q, k, "v"], ["y"], is_causal=int(shape.causal))
        inputs = {"q": operands.q[None], "k": operands.k[None], "v": operands.v[None]} | tables
        run, result = session([*nodes, node], inputs, {"y": (1, heads, n, d)}, threads)
        return run, lambda: result()[0]

    def behind_rotary_embedding():
        turns = [helper.make_node("RotaryEmbedding", [x, "cos", "sin"], [f"turned_{x}"]) for x in "qk"]
        return attention(*turns, q="turned_q", k="turned_k", cos=operands.cos[None], sin=operands.sin[None])

    found = {"attention/onnxruntime-mha/plain": multi_head,
             "attention/onnxruntime-attention/plain": attention,
             "attention/onnxruntime-attention/rope": behind_rotary_embedding}
    if shape.causal:
        found["attention/onnxruntime-gqa/rope"] = group_query
    return found
