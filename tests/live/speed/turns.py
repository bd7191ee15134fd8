"""Several contenders, turn by turn, and the memory of this process: what the comparisons share."""

import statistics
import time


def medians(calls, options):
    """The median time of each call, and how many rounds there were. Who goes first changes from round to round."""
    times, begin, rounds = {name: [] for name in calls}, time.perf_counter(), 0
    while rounds < options.rounds or time.perf_counter() - begin < options.seconds:
        order = list(calls)
        for name in order[rounds % len(order) :] + order[: rounds % len(order)]:
            time.sleep(0.01)
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        rounds += 1
    return {name: statistics.median(own) for name, own in times.items()}, rounds


def kib(field):
    """A line of this process's status, in KiB: `VmRSS`, or `VmHWM`, its peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))
