"""JAX's dot_product_attention; RoPE in front of it, compiled as one function with it."""

import jax
import jax.numpy as jnp
import numpy as np


def rivals(shape, operands, threads):
    """Its threads are as many as the CPUs that the process may run on."""
    del threads
    # [1, tokens, heads, channels]
    q, k, v = (jnp.asarray(np.swapaxes(x, 0, 1)[None]) for x in (operands.q, operands.k, operands.v))
    cos, sin = (jnp.asarray(x[:, None]) for x in (operands.cos, operands.sin))

    def turn(x):
        low, high = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)

    def plain(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=shape.causal)

    def rope(q, k, v):
        return plain(turn(q), turn(k), v)

    def builder(attend):
        def build():
            function, result = jax.jit(attend), []

            def run():
                result[:] = [function(q, k, v).block_until_ready()]

            return run, lambda: np.swapaxes(np.asarray(result[0])[0], 0, 1)

        return build

    return {"attention/jax/plain": builder(plain), "attention/jax/rope": builder(rope)}
