"""Rivals timed in turn, and what their times say: bench/compare/race.hpp and statistics.hpp once more."""

import math
import random
import statistics
import time

# A rival whose last run took no longer runs once untimed before each draw.
SHORT = 0.1


def race(runs, draws, rest=0.0, clock=time.perf_counter, sleep=time.sleep, shuffle=None):
    """Seconds of each of `runs`, a list of functions: `draws` rounds in which each runs once, after a round that is not
    timed. Each round has an order of its own, the same ones in every race (`shuffle` reorders a list in place):
    whoever always came after the one that leaves nothing in the caches would pay for it, a tenth of a short call.

    Before its turn comes a pause of `rest` seconds, so that the threads of the one before stop spinning; a rival that
    is soon done then runs once untimed, to wake its own threads and find its operands in the caches it left them in.
    """
    def timed(run):
        begin = clock()
        run()
        return clock() - begin

    shuffle = shuffle or random.Random(1).shuffle
    last = [timed(run) for run in runs]
    seconds = [[] for _ in runs]
    order = list(range(len(runs)))
    for _ in range(draws):
        shuffle(order)
        for i in order:
            run = runs[i]
            if rest:
                sleep(rest)
            if last[i] <= SHORT:
                run()
            last[i] = timed(run)
            seconds[i].append(last[i])
    return seconds


def median_interval(values, wanted=0.95):
    """The k-th smallest and the k-th largest value, k as large as they still hold the median with probability
    `wanted`: 1 - 2 P(B < k), B ~ Binomial(n, 1/2), if the values are independent draws. The whole range where none does."""
    ordered, n = sorted(values), len(values)
    below, k = 1, 1  # 2^n P(B < k)
    while 2 * (k + 1) <= n + 1 and 2 * (below + math.comb(n, k)) <= (1 - wanted) * 2 ** n:
        below += math.comb(n, k)
        k += 1
    return ordered[k - 1], ordered[n - k]


def paired_ratio(a, b):
    """Fields for the times `a` over the times `b` of the same rounds: the median quotient, its interval, and the
    quotient of the bests."""
    quotients = [x / y for x, y in zip(a, b, strict=True)]
    return statistics.median(quotients), median_interval(quotients), min(a) / min(b)
