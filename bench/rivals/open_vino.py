"""OpenVINO's scaled_dot_product_attention, alone and with RoPE in front."""

import numpy as np
import openvino
from openvino import opset13 as ops

from rivals import operands as operand


def rivals(shape, operands, threads):
    arrays = {"q": operands.q[None], "k": operand.wide(shape, operands.k)[None], "v": operand.wide(shape, operands.v)[None]}
    options = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "INFERENCE_NUM_THREADS": threads,
               "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}

    def turn(x):
        cos, sin = (ops.constant(table[None, None]) for table in (operands.cos, operands.sin))
        low, high = ops.split(x, 3, 2).outputs()
        return ops.concat([ops.subtract(ops.multiply(low, cos), ops.multiply(high, sin)),
                           ops.add(ops.multiply(high, cos), ops.multiply(low, sin))], 3)

    def builder(what):
        def build():
            inputs = {name: ops.parameter(x.shape, np.float32, name=name) for name, x in arrays.items()}
            q, k, v = inputs.values()
            if what == "rope":
                q, k = turn(q), turn(k)
            attended = ops.scaled_dot_product_attention(q, k, v, causal=shape.causal)
            model = openvino.Model([ops.result(attended)], list(inputs.values()))
            request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
            for name, x in arrays.items():
                request.set_tensor(name, openvino.Tensor(x, shared_memory=True))

            def run(keep=arrays):
                request.infer()

            return run, lambda: request.get_output_tensor(0).data[0]

        return build

    return {f"attention/openvino/{what}": builder(what) for what in ("plain", "rope")}
