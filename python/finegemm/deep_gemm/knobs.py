"""Settings of the process. Each call reads those that it needs once, and makes them its own options."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from finegemm.errors import InvalidArgument, Unsupported
from finegemm.torch_module import torch

from .operands import integer, integers


@dataclass(slots=True)
class Knobs:
    """A thread sets one field at a time, and none depends on another."""

    num_sms: int = 0  # 0: all that the device has
    pdl: bool = False
    alignment: int = 128
    tc_util: int = 0  # 0: not set, which is 100
    ignores_compile_dims: bool = False
    block_multiples: tuple[int, ...] = (1, 1)
    deterministic: bool = False


_knobs = Knobs()


class _Sms(dict[int, int]):
    """SMs of each GPU that a call or a setting has asked for, by its index. While there is one, CUDA is initialised."""

    fewest = 0
    of_each = 0  # where all GPUs have as many: to ask which one is current takes longer than all else of a setting

    def __missing__(self, index: int) -> int:
        self[index] = sms = int(torch.cuda.get_device_properties(index).multi_processor_count)
        self.fewest = min(self.values())
        if len(self) == torch.cuda.device_count() and self.fewest == max(self.values()):
            self.of_each = sms
        return sms


_sms = _Sms()


def _current_sms() -> int:
    if torch is None or not torch.cuda.is_available():
        raise Unsupported("get_num_sms: there is no GPU whose SMs could be counted; set_num_sms says how many to use")
    for index in range(torch.cuda.device_count()):
        _sms[index]
    return _sms[torch.cuda.current_device()]


def _check_num_sms(n: int, sms: int) -> None:
    if n > sms:
        raise InvalidArgument(f"num_sms: is {n}, must be at most the {sms} SMs of the GPU; 0 allows all of them")


def of_call(d: Any) -> dict[str, Any]:
    """Options of a call that writes to `d`, where they are not what calls do by themselves."""
    options: dict[str, Any] = {}
    if n := _knobs.num_sms:
        if n > _sms.fewest and d.is_cuda:
            _check_num_sms(n, _sms[d.get_device()])
        options["num_sms"] = n
    if _knobs.pdl:
        options["pdl"] = True
    return options


def set_num_sms(n: int, /) -> None:
    """At most so many SMs for each kernel; 0: all, as is what get_num_sms returns then. Where CUDA is not initialised,
    calls check the number."""
    if type(n) is not int or not 0 <= n <= _sms.fewest:
        n = integer("num_sms", n)
        if n < 0:
            raise InvalidArgument(f"num_sms: is {n}, must not be negative; 0 allows all SMs of the GPU")
        if n and (_sms or (torch is not None and torch.cuda.is_initialized())):
            _check_num_sms(n, _current_sms())
    _knobs.num_sms = 0 if n == _sms.of_each else n


def get_num_sms() -> int:
    return _knobs.num_sms or _sms.of_each or _current_sms()


def set_pdl(enabled: bool, /) -> None:
    """Programmatic dependent launch of every kernel from now on."""
    _knobs.pdl = bool(enabled)


def get_pdl() -> bool:
    return _knobs.pdl


def set_mk_alignment_for_contiguous_layout(alignment: int, /) -> None:
    """Rows (or k) at whose multiples groups begin: 64 or more where indices say which rows are whose."""
    _knobs.alignment = integer("alignment", alignment)


def get_mk_alignment_for_contiguous_layout() -> int:
    return _knobs.alignment


get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout


def get_theoretical_mk_alignment_for_contiguous_layout(
    expected_m: int | None = None, num_groups: int | None = None
) -> int:
    """The alignment to set: 128 on Hopper, whatever the sizes."""
    return 128


# What follows is kept and has no effect: kernels are compiled with the library, and have the same bits each time.


def set_tc_util(percent: int, /) -> None:
    percent = integer("tc_util", percent)
    if not 0 <= percent <= 100:
        raise InvalidArgument(f"tc_util: is {percent}, must be from 0 to 100; 0 stands for 100")
    _knobs.tc_util = percent


def get_tc_util() -> int:
    return _knobs.tc_util or 100


def set_ignore_compile_dims(ignore: bool, /) -> None:
    _knobs.ignores_compile_dims = bool(ignore)


def set_block_size_multiple_of(multiple: int | Sequence[int], /) -> None:
    both = (multiple, multiple) if isinstance(multiple, int) else tuple(integers("block_size_multiple_of", multiple, 2))
    _knobs.block_multiples = both


def use_deterministic_algorithms(enabled: bool, /) -> None:
    _knobs.deterministic = bool(enabled)
