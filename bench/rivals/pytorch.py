"""PyTorch's scaled_dot_product_attention; RoPE and RoVE written by hand round it, as they stand and compiled."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from rivals import operands as operand


def turn(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def rivals(shape, operands, threads):
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    q, k, v = (torch.from_numpy(x)[None] for x in (operands.q, operands.k, operands.v))
    cos, sin = (torch.from_numpy(x).repeat(1, 2) for x in (operands.cos, operands.sin))

    def plain(q, k, v):
        return scaled_dot_product_attention(q, k, v, is_causal=shape.causal, enable_gqa=shape.heads != shape.kv_heads)

    def rope(q, k, v):
        return plain(turn(q, cos, sin), turn(k, cos, sin), v)

    def rove(q, k, v):
        return turn(plain(turn(q, cos, sin), turn(k, cos, sin), turn(v, cos, sin)), cos, -sin)

    def builder(attend):
        def build():
            result = []

            def run():
                with torch.inference_mode():
                    result[:] = [attend(q, k, v)]

            return run, lambda: result[0][0].numpy()

        return build

    def compiled(attend):
        return lambda: builder(torch.compile(attend, dynamic=False))()

    return {"attention/pytorch/plain": builder(plain),
            "attention/pytorch/rope": builder(rope),
            "attention/pytorch/rove": builder(rove),
            "attention/pytorch-compiled/rope": compiled(rope),
            "attention/pytorch-compiled/rove": compiled(rove)}
