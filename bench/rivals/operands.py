"""Operands, and a float64 oracle that judges what became of them."""

import types

import numpy as np

TURNS = {"plain": "", "rope": "qk", "rove": "qkvo"}
PAGE = 4096


def at_a_page(array):
    """A copy that starts at a page: alignment is part of what is timed."""
    memory = np.empty(array.nbytes + PAGE, np.uint8)
    first = -memory.ctypes.data % PAGE
    copy = memory[first:first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def make(shape, seed=1):
    """q, k, v of variance 1, and cosines and sines [tokens, head_dim / 2] of position times frequency."""
    random = np.random.default_rng(seed)

    def normal(heads):
        return at_a_page(random.standard_normal((heads, shape.tokens, shape.head_dim), np.float32))

    frequencies = 10000.0 ** (-np.arange(0, shape.head_dim, 2) / shape.head_dim)
    angles = np.outer(np.arange(shape.tokens), frequencies)
    return types.SimpleNamespace(q=normal(shape.heads), k=normal(shape.kv_heads), v=normal(shape.kv_heads),
                                 cos=at_a_page(np.cos(angles).astype(np.float32)),
                                 sin=at_a_page(np.sin(angles).astype(np.float32)), angles=angles)


def wide(shape, x):
    """Keys or values with each head repeated for its group of query heads."""
    return at_a_page(np.repeat(x, shape.heads // shape.kv_heads, axis=0))


def turned(x, angles):
    """Pairs (i, i + d/2) of the last axis by `angles`, in double."""
    pair = (x[..., :x.shape[-1] // 2] + 1j * x[..., x.shape[-1] // 2:]) * np.exp(1j * angles)
    return np.concatenate([pair.real, pair.imag], axis=-1)


def judge(shape, operands, what, output):
    """(largest error, largest quotient of an error and its bound) over some rows of all heads.

    The bound is 16 ε (1 + L + √n) Σ_j A_ij |R_j v_j|, ε = 2⁻²⁴, L the largest scale · Σ_c |q_c k_c| of the row:
    roundings add up as in a random walk, with room for exponentials good to 20 units in the last place. 16-bit
    arithmetic is beyond it, and so is another scale, mask or rotation.
    """
    rows = np.unique([0, 1, shape.tokens // 3, shape.tokens // 2, shape.tokens - 2, shape.tokens - 1])
    turns, group = TURNS[what], shape.heads // shape.kv_heads
    worst, share = 0.0, 0.0
    for head in range(shape.heads):
        q = operands.q[head, rows].astype(np.float64)
        k, v = (x[head // group].astype(np.float64) for x in (operands.k, operands.v))
        if "q" in turns:
            q, k = turned(q, operands.angles[rows]), turned(k, operands.angles)
        if "v" in turns:
            v = turned(v, operands.angles)
        visible = np.arange(shape.tokens) <= (rows[:, None] if shape.causal else shape.tokens)
        logits = np.where(visible, q @ k.T / np.sqrt(shape.head_dim), -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        right, size = weights @ v, weights @ abs(v)
        if "o" in turns:
            right = turned(right, -operands.angles[rows])
            halves = size.shape[1] // 2  # |R⁻¹| mixes the two of a pair
            size = np.tile(size[:, :halves] + size[:, halves:], 2)
        largest = np.where(visible, abs(q) @ abs(k).T / np.sqrt(shape.head_dim), 0).max(axis=1, keepdims=True)
        bound = 16 * 2.0 ** -24 * (1 + largest + np.sqrt(shape.tokens)) * size
        error = abs(output[head, rows] - right)
        error = np.where(np.isfinite(error), error, np.inf)
        worst, share = max(worst, error.max()), max(share, (error / bound).max())
    return float(worst), float(share)
