"""Commands of the command line tool as functions: what they print as JSON, as a dict."""

import json
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from finegemm import _native
from finegemm.context import Context, default_handle, handle_of, kept

Shapes = Iterable[Sequence[int] | str]


def report(command: str, context: Context | None, **options: Any) -> dict[str, Any]:
    """Runs a command with those of `options` that are set; a list is an option given several times."""
    words = [command, "--json"]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                words += [f"--{name.replace('_', '-')}"]
            elif one is not None and one is not False:
                words += [f"--{name.replace('_', '-')}", str(one)]
    _, text = _native.report(default_handle() if context is None else handle_of(context), words)
    result: dict[str, Any] = json.loads(text)
    return result


def doctor(*, context: Context | None = None) -> dict[str, Any]:
    """What this machine has of what the library can use, and what to do about what it has not.

    "verdict": where products run. "findings": of each thing "what", its "state" ("ok", "missing" or "broken"),
    "detail", and perhaps a "remedy". With the options of a context, or of the default one.
    """
    return report("doctor", context)


def texts_of(shapes: Shapes) -> list[str]:
    return [shape if isinstance(shape, str) else "x".join(str(extent) for extent in shape) for shape in shapes]


def bench(
    shapes: Shapes | None = None,
    *,
    device: str = "auto",
    config: str | None = None,
    repeats: int | None = None,
    peers: bool = False,
    ep: bool = False,
    ranks: int | None = None,
    output: str | os.PathLike[str] | None = None,
    context: Context | None = None,
) -> dict[str, Any]:
    """Times of products on random operands, checked against sums in double: the record of `finegemm bench --json`.

    `shapes`: (M, N, K), or the lines of problems as explain and errors have them, "gemm 64x2112x7168 groups=4"; None:
    a table on a GPU, three small ones on a CPU. `device`: "auto" (a GPU when there is one), "cpu", "cuda" or "cuda:1".
    `config`: a kernel by name. `repeats`: calls to take the median of. `peers`: time cuBLASLt, too. `output`: a file
    for the record, whole after each shape. A row whose result is wrong has no time but a reason.

    `ep`: layers of experts over ranks instead, lines "moe 64x512x256 16x4" with the tokens of each rank and the experts
    of all, evenly routed and by Zipf's law; None: a table. `ranks`: threads, each with a GPU of its own ("cuda"), or on
    the CPU; None: as many as there are GPUs, on a CPU two. A row has "us" of the "layer", of the experts of a rank
    alone ("local"), of the messages alone ("exchange"), and what the layer takes beside its experts ("exposed").
    """
    shapes = None if shapes is None else texts_of(shapes)
    options = {"device": device, "config": config, "repeats": repeats, "peers": peers, "output": output}
    return report("bench", context, shapes=shapes, ep=ep, ranks=ranks, **options)


def tune(
    shapes: Shapes | None = None,
    *,
    output: str | os.PathLike[str] = "plan_table.json",
    device: str = "cuda",
    repeats: int = 50,
    top: int | None = None,
    context: Context | None = None,
) -> dict[str, Any]:
    """Measures all kernels of shapes on a GPU and writes a plan table of the fastest, which contexts load.

    `shapes`: as of bench. `output`: the plan table, which keeps its entries for other shapes. `repeats`: launches of
    each kernel to take the median of. `top`: measure only so many kernels, the usual one and the cheapest by the model.
    Returns what was measured. Context(plan_table=...) and FINEGEMM_PLAN_TABLE make calls follow the table.
    """
    shapes = None if shapes is None else texts_of(shapes)
    return report("tune", context, shapes=shapes, output=output, device=device, repeats=repeats, top=top)


class tuning:
    """Records which shapes a program uses on a GPU, then tunes them: `with finegemm.tuning("plan_table.json"):`.

    Calls that name no context have a new one meanwhile; kernels that calls name are not tuned. `record` is afterwards
    what `tune` returns, or None where no call was on a GPU. Nothing is measured where the program raises an exception.
    Arguments are those of `tune`.
    """

    record: dict[str, Any] | None = None

    def __init__(
        self,
        output: str | os.PathLike[str] = "plan_table.json",
        *,
        device: str = "cuda",
        repeats: int = 50,
        top: int | None = None,
    ) -> None:
        def measure(problems: list[str]) -> dict[str, Any]:
            return tune(problems, output=output, device=device, repeats=repeats, top=top)

        self.measure = measure

    def __enter__(self) -> "tuning":
        kept.append(default_handle())
        default_handle.cache_clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        problems = _native.problems(default_handle())
        if kind is None and problems:
            self.record = self.measure(problems)
