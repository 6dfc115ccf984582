"""A library that Python has, as a side of the benchmark: it prepares the row it is asked for and times turns of it.

`serve.py LIBRARY THREADS [--cpu]` reads a request a line and answers each with a line:
  (at the start)      -> `is NAME VERSION`, or `missing WHY`
  prepare ROW WORD..  -> `values V..`, what the row computes, so that it can be compared; or `none WHY`
  turn COUNT          -> seconds of one of so many repetitions
`serve.py LIBRARY THREADS --ten-ops` is what the row of new processes starts. bench/peers/torch.cpp speaks the same.
"""
import importlib
import os
import sys
import time

library, threads = sys.argv[1], int(sys.argv[2])
if threads < os.cpu_count() and library != "drjit":  # its pool has a size; others have as many threads as processors
    os.sched_setaffinity(0, range(threads))
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what a library prints is no answer


def answer(*words):
    print(*words, file=answers, flush=True)


def values_of(call):
    """Sixteen elements of a result; of a scalar, three results in a row: those of a training step fall."""
    import numpy

    first = call()
    if first is None:
        return []
    flat = numpy.asarray(first).reshape(-1)
    if flat.size == 1:
        return [float(flat[0])] + [float(numpy.asarray(call()).reshape(-1)[0]) for _ in range(2)]
    return [float(flat[(flat.size - 1) * i // 15]) for i in range(16)]


def serve(rows, now):
    call = None
    for line in sys.stdin:
        verb, *words = line.split()
        try:
            if verb == "turn":
                count = int(words[0])
                start = now()
                for _ in range(count):
                    call()
                answer((now() - start) / count)
            else:
                call = None  # frees the row before
                if words[0] not in rows:
                    answer("none")
                    continue
                call = rows[words[0]](*words[1:])
                answer("values", *values_of(call))
        except Exception as error:  # costs this row only
            answer("none", f"{type(error).__name__}: {error}".splitlines()[0])


try:
    peer = importlib.import_module(f"{library}_rows")
except Exception as error:
    answer("missing", f"{error}".splitlines()[0])
    sys.exit()
if "--ten-ops" in sys.argv:
    peer.ten_ops()
    sys.exit()
answer("is", peer.NAME)
serve(peer.ROWS, time.process_time if "--cpu" in sys.argv else time.perf_counter)
