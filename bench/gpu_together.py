"""What gpu_check.py asks of products that run at once: on two streams, in eight threads, on all GPUs of a process."""

import dataclasses
import functools
import itertools
import random
import threading
from collections.abc import Callable

import torch

from gpu_cases import differing, operands, unequal
from gpu_fixture import Fixture
from gpu_grouped_cases import Problem, offset_rows, small_rows
from gpu_library import Library
from gpu_unscaled_cases import NAMES, OfK, OfRows, One
from gpu_wgrad import WAYS, KGroups

THREADS = 8
HALF_OF_THE_SMS = 60  # so that a product of each stream has room
RUNS_OF_A_ROUND, GATE_CLOCKS = 6, 40_000_000  # a driver queues 1024 launches of a stream; 20 ms to queue them


@dataclasses.dataclass
class Operation:
    """A call that gives D from what D was."""

    name: str
    d: torch.Tensor
    call: Callable[[], None]
    start: torch.Tensor

    def run(self) -> None:
        self.d.copy_(self.start)
        self.call()


def operations(library: Library, seed: int, device="cuda", num_sms: int = 0) -> list[Operation]:
    """One of every kind, of extents and values that the seed decides."""
    generator, chance = torch.Generator(device).manual_seed(seed), random.Random(seed)
    m, few, options = chance.randint(200, 600), chance.randint(1, 16), {"num_sms": num_sms}
    found = []

    def add(name: str, d: torch.Tensor, call, start=None) -> None:
        found.append(Operation(name, d, call, torch.zeros_like(d) if start is None else start))

    def empty(*shape: int, dtype=torch.bfloat16) -> torch.Tensor:
        return torch.empty(*shape, device=device, dtype=dtype)

    for rows, n, k in ((m, 1032, 1552), (few, 2112, 7168)):
        d = empty(rows, n)
        add("gemm", d, library.prepare(*operands(rows, n, k, "mn", generator), d, **options))
    d = empty(m, 520, dtype=torch.float32)
    x = operands(m, 520, 1040, "row", generator, row_b_scales=True)
    old = torch.randn(m, 520, device=device, generator=generator)
    add("gradient of weights", d, library.prepare(*x, d, accumulate=1, **options), old)
    for rows, of_rows in itertools.product((*small_rows(), offset_rows([m, 0, few])), (False, True)):
        p = Problem(rows, 520, 1040, "mn", generator, row_b_scales=of_rows)
        add(f"groups, form {rows.form}", p.d, p.prepare(library, **options), p.d.clone())
    whole = (torch.int8, torch.int8)
    for of_rows in (False, True):
        d = empty(m, 520)
        x = operands(m, 520, 1040, "mn", generator, row_b_scales=of_rows, types=whole)
        add("integers", d, library.prepare(*x, d, **options))
        p = Problem(offset_rows([m, 0, few]), 520, 1040, "row", generator, row_b_scales=of_rows, types=whole)
        add("groups of integers", p.d, p.prepare(library, **options), p.d.clone())
    blocks = [chance.randint(0, 5) for _ in range(7)]
    k_groups = KGroups(few + 64, 264, blocks, "mn", generator, before=1)
    for way in WAYS:
        call = k_groups.prepare(library, way=way, accumulate=1, **options)
        add(f"groups of K, {way}", k_groups.d, call, k_groups.old)
    for of in NAMES:
        plain = OfK(m, 264, blocks, generator, of, after=1)
        for way in WAYS:
            d = empty(*plain.shape, dtype=of)
            add(f"{plain}, {way}", d, plain.prepare(library, d, way=way, **options))
        for case in (One(m, 1032, 840, generator, of), OfRows(offset_rows([m, 0, few]), 520, 840, generator, of)):
            d = empty(*case.shape, dtype=torch.float32)
            add(f"{case}", d, case.prepare(library, d, **options))
    values = torch.randn(m, 1040, device=device, generator=generator)
    for kind, height in (("rows", 1), ("blocks", 128)):
        q, s = empty(m, 1040, dtype=torch.float8_e4m3fn), empty(-(-m // height), 9, dtype=torch.float32)
        add(f"quantize {kind}", q.view(torch.uint8), lambda kind=kind, q=q, s=s: library.quantize(kind, values, q, s))
    q = empty(1040, -(-m // 16) * 16, dtype=torch.float8_e4m3fn)
    s = empty(1040, -(-m // 128), dtype=torch.float32)
    add("quantize columns", q.view(torch.uint8), lambda: library.quantize_columns(values, q, s))
    codes = torch.randint(0, 0x7F, (m, 1040), device=device, generator=generator).to(torch.uint8)
    exponents = torch.randint(110, 130, (m, 36), device=device, generator=generator).to(torch.uint8)
    codes, words = codes.view(torch.float8_e4m3fn), exponents.view(torch.int32)
    for height in (1, 128):
        q8, s8 = empty(m, 1040, dtype=torch.float8_e4m3fn), empty(-(-m // height), 9, dtype=torch.float32)
        call = functools.partial(library.reencode, codes, words, q8, s8, pdl=True)
        add(f"reencode, {height} rows", q8.view(torch.uint8), call)
    activated, of_it = empty(m, 512, dtype=torch.float8_e4m3fn), empty(m, 4, dtype=torch.float32)
    pairs = values[:, :1024]
    add("SwiGLU", activated.view(torch.uint8), lambda: library.swiglu_quantize(pairs, activated, of_it, pdl=True))
    return found


class Worker:
    """Operations of one stream, and the bits that each gave when nothing else ran."""

    def __init__(self, found: list[Operation]):
        self.operations, self.device = found, found[0].d.device
        self.first = []
        for operation in found:
            operation.run()
            self.first.append(operation.d.clone())
        self.different = torch.zeros(len(found), device=self.device, dtype=torch.int64)
        self.stream = torch.cuda.Stream(self.device)
        torch.cuda.synchronize(self.device)

    def run(self, runs: int) -> None:
        """Waits for nothing."""
        with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            for _ in range(runs):
                for i, (operation, first) in enumerate(zip(self.operations, self.first, strict=True)):
                    operation.run()
                    self.different[i].add_(unequal(operation.d, first))

    def wrong(self) -> list[str]:
        torch.cuda.synchronize(self.device)
        counts = zip(self.operations, self.different.tolist(), strict=True)
        return [f"{operation.name}: {count} elements moved" for operation, count in counts if count]


def run_in_threads(workers: list[Worker], runs: int) -> None:
    failures = []

    def work(worker: Worker) -> None:
        try:
            worker.run(runs)
        except Exception as e:  # a thread's exceptions end there
            failures.append(e)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def must_be_right(workers: list[Worker], where: str) -> None:
    if wrong := [text for worker in workers for text in worker.wrong()]:
        raise AssertionError(f"{where}: " + "; ".join(wrong))


class Together(Fixture):
    def streams(self):
        """Two streams, each with all kinds of operations of its own on half of the SMs. Both wait until they have
        much to do."""
        workers = [Worker(operations(self.tested, seed, num_sms=HALF_OF_THE_SMS)) for seed in range(2)]
        rounds, at_once = -(-self.RUNS // RUNS_OF_A_ROUND), 0
        for _ in range(rounds):
            start = torch.cuda.Event(enable_timing=True)
            start.record()
            for worker in workers:
                with torch.cuda.stream(worker.stream):
                    torch.cuda._sleep(GATE_CLOCKS)
            spans = []
            for worker in workers:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record(worker.stream)
                worker.run(RUNS_OF_A_ROUND)
                end.record(worker.stream)
                spans.append((begin, end))
            must_be_right(workers, "two streams at once")
            begins, ends = ([start.elapsed_time(event) for event in events] for events in zip(*spans, strict=True))
            at_once += max(begins) < min(ends)
        if not at_once:
            raise AssertionError("the two streams were never busy at once, so that nothing was seen of them")
        return {"operations": len(workers[0].operations), "rounds": rounds, "at_once": at_once}

    def threads(self):
        """Eight threads with streams and operations of their own, one context."""
        workers = [Worker(operations(self.tested, seed)) for seed in range(THREADS)]
        run_in_threads(workers, self.RUNS)
        must_be_right(workers, "eight threads")
        return {"threads": THREADS, "operations": len(workers[0].operations), "runs": self.RUNS}

    def devices(self):
        """A thread for each GPU, two on the only one: GPUs give the same bits, alone, at once, and to a caller for
        whom another GPU is current."""
        gpus = torch.cuda.device_count()
        at = [f"cuda:{i % gpus}" for i in range(max(2, gpus))]
        workers = [Worker(operations(self.tested, 0, device)) for device in at]
        for worker in workers[1:]:
            for operation, mine, of_first in zip(worker.operations, worker.first, workers[0].first, strict=True):
                if count := differing(mine, of_first):
                    raise AssertionError(f"{operation.name}: {count} elements differ between GPUs")
        run_in_threads(workers, self.RUNS)
        must_be_right(workers, f"{gpus} GPUs at once")
        for i, worker in enumerate(workers):
            with torch.cuda.device((i + 1) % gpus):
                for operation, first in zip(worker.operations, worker.first, strict=True):
                    operation.run()
                    if count := differing(operation.d, first):
                        raise AssertionError(f"{operation.name}: {count} elements moved while another GPU was current")
        return {"gpus": gpus, "threads": len(at), "operations": len(workers[0].operations)}
