"""Checks of gpu_check.py side by side: lanes, each with a process of its own, that take the next check in turn."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """Of one check. `result`: what to record, None where it failed. `said`: the line that tells of it. `lost`: CUDA
    returns an error to all that this process calls from now on."""

    name: str
    said: str
    result: dict | None = None
    origin: dict = field(default_factory=dict)
    lost: bool = False

    @property
    def passed(self) -> bool:
        return self.result is not None and "short" not in self.result


def side_by_side(
    names: Iterable[str],
    lanes: int,
    start: Callable[[], Executor],
    run: Callable[[str], Outcome],
    fits: Callable[[str], bool],
) -> Iterator[Outcome]:
    """Outcomes of `run` for all names that `fits` still lets begin, as they come; begun in the order of `names`.
    `start` makes a lane, which runs one at a time, and makes it anew where its process ended or has lost CUDA."""
    waiting = list(names)
    idle = [start() for _ in range(min(lanes, len(waiting)))]
    busy: dict[Future, tuple[str, Executor]] = {}
    while True:
        while idle and (name := next(filter(fits, waiting), None)):
            waiting.remove(name)
            lane = idle.pop()
            print(f"begins  {name}", flush=True)
            busy[lane.submit(run, name)] = name, lane
        if not busy:
            break
        for future in wait(busy, return_when=FIRST_COMPLETED).done:
            name, lane = busy.pop(future)
            try:
                outcome = future.result()
            except BrokenExecutor as e:
                outcome = Outcome(name, f"FAILED  {name:<18} {e}", lost=True)
            yield outcome
            if outcome.lost:
                lane.shutdown(wait=False)
                lane = start()
            idle.append(lane)
    for lane in idle:
        lane.shutdown()
