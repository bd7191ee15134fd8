"""Several contenders, turn by turn, and the memory of this process: what the comparisons share."""

import statistics
import time


# Of a pause between two turns: its length, the longest wait for one without work, and how much of it counts as none.
PAUSE, LONGEST, IDLE = 0.01, 2.0, 0.05


def settle():
    """Waits until no thread of this process works: those of a peer look for more work for a while, on a processor that the next in turn
    has a thread for."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < LONGEST:
        worked, start = time.process_time(), time.perf_counter()
        time.sleep(PAUSE)
        if time.process_time() - worked < IDLE * (time.perf_counter() - start):
            return


def medians(calls, options):
    """The median time of each call, and how many rounds there were. Who goes first changes from round to round."""
    times, begin, rounds = {name: [] for name in calls}, time.perf_counter(), 0
    while rounds < options.rounds or time.perf_counter() - begin < options.seconds:
        order = list(calls)
        for name in order[rounds % len(order) :] + order[: rounds % len(order)]:
            settle()
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        rounds += 1
    return {name: statistics.median(own) for name, own in times.items()}, rounds


def kib(field):
    """A line of this process's status, in KiB: `VmRSS`, or `VmHWM`, its peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))
