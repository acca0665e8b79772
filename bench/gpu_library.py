"""libfinegemm.so through its C ABI, for torch tensors: what gpu_check.py calls, without the Python package."""

import ctypes
import dataclasses
import json

import torch

from c_structs import HEADERS, structs

DTYPES = {torch.float8_e4m3fn: 1, torch.bfloat16: 2, torch.float16: 3, torch.float32: 4, torch.int32: 5}
DTYPES |= {torch.float8_e5m2: 7, torch.int64: 8, torch.int8: 9}
I32 = 6
FAST, EXACT, HOPPER = 0, 1, 2
AS_CONTEXT, ON, OFF = 0, 1, 2
OFFSETS, INDICES, PREFIX_SUMS, MASKED, WHOLE = 1, 2, 3, 4, 5
COLUMNS, BLOCKS = 0, 1
NO_GROUPS, ROW_GROUPS, K_SIZES, K_PREFIX_SUMS = range(4)

C = structs("".join(header.read_text() for header in HEADERS))
Matrix, Stack, Groups, Error = C["matrix"], C["stack"], C["groups"], C["error"]
GemmArgs, GroupedGemmArgs, KGroupedGemmArgs = C["gemm_args"], C["grouped_gemm_args"], C["k_grouped_gemm_args"]
EinsumArgs = C["einsum_args"]
GemmOptions, QuantizeOptions, Shape = C["gemm_options"], C["quantize_options"], C["shape"]


QuantizeWeightsArgs, QuantizeColumnsArgs = C["quantize_weights_args"], C["quantize_columns_args"]
ReencodeArgs, ReencodeOptions = C["reencode_args"], C["reencode_options"]
ScaleLayoutArgs, ScaleLayoutOptions = C["scale_layout_args"], C["scale_layout_options"]
MqaArgs, PagedMqaArgs, MqaOptions = C["mqa_logits_args"], C["paged_mqa_logits_args"], C["mqa_options"]
PrenormArgs, PrenormOptions, PrenormShape = C["prenorm_args"], C["prenorm_options"], C["prenorm_shape"]
SwigluArgs, SwigluOptions = C["swiglu_args"], C["swiglu_options"]
PagedMqaScheduleArgs, PagedMqaScheduleOptions = C["paged_mqa_schedule_args"], C["paged_mqa_schedule_options"]
RouteArgs, PermuteArgs, CombineArgs = C["route_args"], C["permute_quantize_args"], C["combine_args"]
RouteOptions, PermuteOptions, CombineOptions = C["route_options"], C["permute_options"], C["combine_options"]


def matrix(t: torch.Tensor | None) -> ctypes.Structure:
    """Nothing for None: not all types of operands have scales."""
    if t is None:
        return Matrix(None, DTYPES[torch.float32], 1, 0, 0, 0, 0, 0, 1)
    assert t.dim() == 2
    return Matrix(
        t.data_ptr(),
        DTYPES[t.dtype],
        2 if t.is_cuda else 1,
        t.get_device() if t.is_cuda else 0,
        0,
        t.shape[0],
        t.shape[1],
        t.stride(0),
        t.stride(1),
    )


def stream_of(t: torch.Tensor) -> int | None:
    """The current one of its GPU."""
    return torch.cuda.current_stream(t.device).cuda_stream if t.is_cuda else None


def integers(t: torch.Tensor) -> ctypes.Structure:
    """int32 that are numbers, not four exponents each."""
    m = matrix(t)
    m.dtype = I32
    return m


def stack(t: torch.Tensor | None) -> ctypes.Structure:
    """Of a 3-D tensor the matrices that its first dimension counts; of a 2-D one itself."""
    return Stack(matrix(t), 1, 0) if t is None or t.dim() == 2 else Stack(matrix(t[0]), t.shape[0], t.stride(0))


@dataclasses.dataclass
class Epilogue:
    """D = alpha A B + beta C + bias. C is shaped as D, the bias [N] f32. Or heads of D, each with a gap."""

    alpha: float
    beta: float
    c: torch.Tensor | None
    bias: torch.Tensor | None
    head_left: int = 0
    head_gap: int = 0
    head_right: int = 0

    def with_c(self, c: torch.Tensor | None) -> "Epilogue":
        return dataclasses.replace(self, c=c)

    def on_cpu(self, rows: torch.Tensor) -> "Epilogue":
        """For some rows of D."""
        c, bias = self.c, self.bias
        return dataclasses.replace(
            self, c=None if c is None else c[rows].cpu(), bias=None if bias is None else bias.cpu()
        )

    def changes_nothing(self) -> bool:
        return self.alpha == 1 and self.bias is None and (self.c is None or self.beta == 0)

    def text(self) -> str:
        return f"alpha {self.alpha}, beta {self.beta}, C {self.c is not None}, bias {self.bias is not None}"

    def struct(self) -> ctypes.Structure:
        bias = None if self.bias is None else self.bias[None]
        factors, heads = (self.alpha, self.beta), (self.head_left, self.head_gap, self.head_right)
        return C["epilogue"](ctypes.sizeof(C["epilogue"]), *factors, 0, stack(self.c), matrix(bias), *heads)


def groups(numbers: torch.Tensor, form: int, alignment: int, expected_m: int) -> ctypes.Structure:
    assert numbers.dtype == torch.int32 and numbers.is_contiguous()
    device = (2, numbers.get_device()) if numbers.is_cuda else (1, 0)
    return Groups(form, 0, numbers.data_ptr(), numbers.numel(), alignment, expected_m, *device)


class Library:
    def __init__(self, path: str):
        self.c = ctypes.CDLL(path)
        self.c.finegemm_version.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p()
        self.error = Error()
        self.check(self.c.finegemm_context_create(None, ctypes.byref(self.context), ctypes.byref(self.error)))

    def check(self, code: int) -> None:
        if code:
            raise RuntimeError(self.error.message.decode())

    def version(self) -> str:
        return self.c.finegemm_version().decode()

    def prepare(
        self,
        a,
        sfa,
        b,
        sfb,
        d,
        numerics=FAST,
        config=None,
        batch_invariant=AS_CONTEXT,
        num_sms=0,
        pdl=0,
        accumulate=0,
        prefetch_weights=0,
        epilogue=None,
    ):
        """A function without arguments that queues this GEMM on the current stream; it keeps the tensors alive."""
        args = GemmArgs(*(matrix(t) for t in (a, sfa, b, sfb, d)))
        options = self.options(numerics, config, AS_CONTEXT, batch_invariant, num_sms, pdl, accumulate)
        options.prefetch_weights = prefetch_weights
        return self.queued(self.c.finegemm_gemm, args, options, (a, sfa, b, sfb, d), epilogue)

    def prepare_grouped(
        self,
        a,
        sfa,
        b,
        sfb,
        d,
        numbers,
        form,
        alignment=128,
        expected_m=0,
        numerics=FAST,
        config=None,
        check_values=AS_CONTEXT,
        num_sms=0,
        pdl=0,
        epilogue=None,
        batch_invariant=AS_CONTEXT,
    ):
        """The same for groups: b and sfb are 3-D; a, sfa and d are 2-D, or 3-D where `form` is MASKED."""
        which = groups(numbers, form, alignment, expected_m)
        args = GroupedGemmArgs(*(stack(t) for t in (a, sfa, b, sfb, d)), which)
        options = self.options(numerics, config, check_values, batch_invariant, num_sms, pdl)
        return self.queued(self.c.finegemm_grouped_gemm, args, options, (a, sfa, b, sfb, d, numbers), epilogue)

    def prepare_k_grouped(
        self,
        a,
        sfa,
        b,
        sfb,
        d,
        offsets,
        layout=COLUMNS,
        numerics=FAST,
        config=None,
        check_values=AS_CONTEXT,
        num_sms=0,
        pdl=0,
        accumulate=0,
    ):
        """The same for groups of k: d is 3-D, offsets int32. BLOCKS: a and b are all memory, as [M, K] and [N, K]."""
        assert offsets.dtype == torch.int32 and offsets.is_contiguous() and offsets.numel() == d.shape[0] + 1
        device = (2, offsets.get_device()) if offsets.is_cuda else (1, 0)
        args = KGroupedGemmArgs(
            *(matrix(t) for t in (a, sfa, b, sfb)), stack(d), offsets.data_ptr(), d.shape[0], *device, layout, 0
        )
        options = self.options(numerics, config, check_values, AS_CONTEXT, num_sms, pdl, accumulate)
        return self.queued(self.c.finegemm_k_grouped_gemm, args, options, (a, sfa, b, sfb, d, offsets))

    def prepare_einsum(
        self,
        equation: str,
        a,
        sfa,
        b,
        sfb,
        d,
        numerics=FAST,
        config=None,
        batch_invariant=AS_CONTEXT,
        num_sms=0,
        pdl=0,
        accumulate=0,
    ):
        """The same by an equation: all are 3-D, but for d of a sum."""
        args = EinsumArgs(*(stack(t) for t in (a, sfa, b, sfb, d)))
        options = self.options(numerics, config, AS_CONTEXT, batch_invariant, num_sms, pdl, accumulate)

        def call(context, *rest):
            return self.c.finegemm_einsum(context, equation.encode(), *rest)

        return self.queued(call, args, options, (a, sfa, b, sfb, d))

    @staticmethod
    def options(numerics, config, check_values, batch_invariant, num_sms, pdl, accumulate=0):
        name = config.encode() if config else None
        size = ctypes.sizeof(GemmOptions)
        return GemmOptions(size, numerics, check_values, batch_invariant, None, name, num_sms, pdl, accumulate)

    def queued(self, function, args, options, tensors, epilogue=None):
        cuda = tensors[0].is_cuda
        struct = epilogue.struct() if epilogue else None
        if struct:
            options.epilogue = ctypes.addressof(struct)

        def call(keep=(tensors, epilogue, struct)):
            # That of the operands' GPU, which need not be the current one.
            options.stream = torch.cuda.current_stream(tensors[0].device).cuda_stream if cuda else None
            self.check(function(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

        return call

    def gemm(self, *args, **options) -> None:
        self.prepare(*args, **options)()

    def grouped_gemm(self, *args, **options) -> None:
        self.prepare_grouped(*args, **options)()

    def k_grouped_gemm(self, *args, **options) -> None:
        self.prepare_k_grouped(*args, **options)()

    def quantize(self, kind: str, x, q, scales, power_of_two=False) -> None:
        """kind: "rows", "whole_rows", where the shape of scales says it, or "blocks"."""
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
        options = QuantizeOptions(ctypes.sizeof(QuantizeOptions), power_of_two, stream)
        call = getattr(self.c, f"finegemm_quantize_{kind.removeprefix('whole_')}")
        self.check(
            call(
                self.context,
                *(ctypes.byref(matrix(t)) for t in (x, q, scales)),
                ctypes.byref(options),
                ctypes.byref(self.error),
            )
        )

    def quantize_weights(self, x, q, scales, transposed, power_of_two=False) -> None:
        """All 3-D."""
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
        options = QuantizeOptions(ctypes.sizeof(QuantizeOptions), power_of_two, stream)
        args = QuantizeWeightsArgs(*map(stack, (x, q, scales, transposed)))
        call = self.c.finegemm_quantize_weights
        self.check(call(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

    def quantize_columns(
        self, x, q, scales, row_q=None, row_scales=None, offsets=None, begins=None, power_of_two=False
    ) -> None:
        """offsets and begins: vectors of int32."""
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
        options = QuantizeOptions(ctypes.sizeof(QuantizeOptions), power_of_two, stream)
        numbers = (matrix(t) if t is None else integers(t.view(1, -1)) for t in (offsets, begins))
        args = QuantizeColumnsArgs(*map(matrix, (x, q, scales, row_q, row_scales)), *numbers)
        call = self.c.finegemm_quantize_columns
        self.check(call(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

    def reencode(self, codes, words, q, scales, changed=None, pdl=0) -> None:
        """All 2-D or 3-D, but for `changed`, of one int32."""
        options = ReencodeOptions(ctypes.sizeof(ReencodeOptions), pdl, stream_of(codes))
        counter = matrix(None) if changed is None else integers(changed.view(1, 1))
        args = ReencodeArgs(*map(stack, (codes, words, q, scales)), counter)
        call = self.c.finegemm_reencode
        self.check(call(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

    def swiglu_quantize(self, x, q, scales, weights=None, groups=None, form=WHOLE, alignment=128, **options) -> None:
        """All 2-D, or 3-D; weights [G, M]. options: members of finegemm_swiglu_options."""
        stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None
        size = ctypes.sizeof(SwigluOptions)
        given = SwigluOptions(struct_size=size, stream=stream, **{"gate_alpha": 1.0} | options)
        device = (2, x.get_device()) if x.is_cuda else (1, 0)
        numbers = (None, 0) if groups is None else (groups.data_ptr(), groups.numel())
        of = Groups(form, 0, *numbers, alignment, 0, *device)
        args = SwigluArgs(*map(stack, (x, q, scales)), matrix(weights), of)
        call = self.c.finegemm_swiglu_quantize
        self.check(call(self.context, ctypes.byref(args), ctypes.byref(given), ctypes.byref(self.error)))

    def scale_layout(
        self, sf, out, numbers=None, form=NO_GROUPS, alignment=128, scale_k=128, power_of_two=False
    ) -> None:
        """sf and out are 2-D or 3-D, of float32 or of int32 that packs four exponents."""
        stream = torch.cuda.current_stream().cuda_stream if out.is_cuda else None
        options = ScaleLayoutOptions(ctypes.sizeof(ScaleLayoutOptions), power_of_two, stream)
        device = (2, out.get_device()) if out.is_cuda else (1, 0)
        where = (None, 0) if numbers is None else (numbers.data_ptr(), numbers.numel())
        args = ScaleLayoutArgs(stack(sf), stack(out), form, 0, *where, alignment, scale_k, *device)
        call = self.c.finegemm_scale_layout
        self.check(call(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

    def mqa_logits(self, q, k, sfk, w, starts, ends, d, form=0, relu=0, num_sms=0, pdl=False) -> None:
        """q [S, H, D], k [Skv, D], w [S, H], d [S, any]; sfk, starts and ends are 1-D."""
        rows = (matrix(k), matrix(sfk[None]), matrix(w), integers(starts[None]), integers(ends[None]), matrix(d))
        self.score(self.c.finegemm_mqa_logits, MqaArgs(stack(q), *rows), d, form, relu, num_sms, pdl)

    def paged_mqa_logits(self, q, cache, w, lengths, table, d, form=0, relu=0, num_sms=0, pdl=False) -> None:
        """q [B * T, H, D], cache [pages, bytes of a page], w [B * T, H], lengths [B, 1 or T], d [B * T, any]."""
        schedule = torch.empty(2, 2, dtype=torch.int32, device=d.device)  # nothing reads it
        numbers = (integers(t) for t in (lengths, table, schedule))
        args = PagedMqaArgs(stack(q), matrix(cache), matrix(w), *numbers, matrix(d))
        self.score(self.c.finegemm_paged_mqa_logits, args, d, form, relu, num_sms, pdl)

    def score(self, function, args, d, form, relu, num_sms, pdl) -> None:
        stream = torch.cuda.current_stream(d.device).cuda_stream if d.is_cuda else None
        options = MqaOptions(ctypes.sizeof(MqaOptions), form, relu, OFF, num_sms, pdl, stream)
        self.check(function(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

    def paged_mqa_schedule(self, lengths, queries_each: int, schedule) -> None:
        stream = torch.cuda.current_stream(schedule.device).cuda_stream if schedule.is_cuda else None
        options = PagedMqaScheduleOptions(ctypes.sizeof(PagedMqaScheduleOptions), False, stream)
        args = PagedMqaScheduleArgs(integers(lengths), queries_each, integers(schedule))
        call = self.c.finegemm_paged_mqa_schedule
        self.check(call(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

    def prenorm_gemm(self, a, b, d, sqrsum, num_sms=0, pdl=False) -> None:
        """a [M, K], b [N, K], d [S, M, N], sqrsum [S, M]."""
        stream = torch.cuda.current_stream(d.device).cuda_stream if d.is_cuda else None
        options = PrenormOptions(ctypes.sizeof(PrenormOptions), num_sms, pdl, 0, stream)
        args = PrenormArgs(matrix(a), matrix(b), stack(d), matrix(sqrsum))
        call = self.c.finegemm_prenorm_gemm
        self.check(call(self.context, ctypes.byref(args), ctypes.byref(options), ctypes.byref(self.error)))

    def route(self, ids, inverse, numbers, permutation, form, experts, first, rows, alignment=128, pdl=False) -> None:
        """ids [T, k], inverse [T, k], numbers 1-D, permutation 2-D or None."""
        order = matrix(None) if permutation is None else integers(permutation)
        m = matrix(ids)
        m.dtype = m.dtype if ids.dtype == torch.int64 else I32
        args = RouteArgs(m, integers(inverse), integers(numbers[None]), order, form, 0, experts, first, rows, alignment)
        options = RouteOptions(ctypes.sizeof(RouteOptions), OFF, pdl, 0, stream_of(ids))
        self.check(self.c.finegemm_route(self.context, *self.by_reference(args, options)))

    def permute_quantize(
        self, x, inverse, q, scales=None, x_scales=None, power_of_two=False, num_sms=0, pdl=False
    ) -> None:
        """q and scales 2-D, or 3-D where groups are masked."""
        args = PermuteArgs(matrix(x), matrix(x_scales), integers(inverse), stack(q), stack(scales))
        size = ctypes.sizeof(PermuteOptions)
        options = PermuteOptions(size, OFF, power_of_two, num_sms, pdl, 0, stream_of(x))
        self.check(self.c.finegemm_permute_quantize(self.context, *self.by_reference(args, options)))

    def combine(self, y, inverse, weights, out, num_sms=0, pdl=False) -> None:
        """y 2-D, or 3-D where groups are masked; weights [T, k], or None for ones."""
        args = CombineArgs(stack(y), integers(inverse), matrix(weights), matrix(out))
        options = CombineOptions(ctypes.sizeof(CombineOptions), OFF, num_sms, pdl, stream_of(y))
        self.check(self.c.finegemm_combine(self.context, *self.by_reference(args, options)))

    def moe(self, args, options, out) -> None:
        """The structs of a call that writes `out`."""
        options.stream = stream_of(out)
        self.check(self.c.finegemm_moe(self.context, *self.by_reference(args, options)))

    def ep_moe(self, communicator, args, how, options, out) -> None:
        options.stream = stream_of(out)
        structs = (args, how, options, self.error)
        self.check(self.c.finegemm_ep_moe(self.context, communicator, *map(ctypes.byref, structs)))

    def by_reference(self, args, options) -> tuple:
        return tuple(map(ctypes.byref, (args, options, self.error)))

    def explain_prenorm(self, m: int, n: int, k: int, slices: int, num_sms: int = 0) -> dict:
        shape = PrenormShape(ctypes.sizeof(PrenormShape), num_sms, m, n, k, slices, b"")
        return self.explained(self.c.finegemm_explain_prenorm, shape)

    def explain(self, m: int, n: int, k: int, out_dtype: torch.dtype | None = None, **fields) -> dict:
        """fields: others of finegemm_shape."""
        d = DTYPES[out_dtype] if out_dtype else 0
        shape = Shape(ctypes.sizeof(Shape), m=m, n=n, k=k, out_dtype=d, device=b"", **fields)
        return self.explained(self.c.finegemm_explain, shape)

    def explained(self, function, shape) -> dict:
        text = ctypes.create_string_buffer(1 << 16)
        size = ctypes.c_size_t(len(text))
        self.check(function(ctypes.byref(shape), text, size, None, ctypes.byref(self.error)))
        return json.loads(text.value)
