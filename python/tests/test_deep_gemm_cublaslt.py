"""finegemm.deep_gemm: products by cuBLASLt, of which a stand-in computes on the CPU what the real one is asked for."""

import ctypes
import importlib.util
import pathlib
import re

import pytest

from finegemm import deep_gemm
from finegemm.deep_gemm import cublaslt
from torch_support import hopper, needs_gpu, torch

M, N, K = 24, 16, 32
TYPES = {code: getattr(torch, name) for name, code in cublaslt._TYPES.items()}


class StandIn:
    """The functions of cuBLASLt that are used, as cublasLt.h has them, for memory of the CPU."""

    def __init__(self, algorithms=1):
        self.objects, self.algorithms, self.live = {}, algorithms, 0

    def __getattr__(self, name):
        if name.endswith("Destroy"):
            return self.destroy
        if name.endswith("SetAttribute"):
            return self.set_attribute
        raise AttributeError(name)

    def new(self, place, value):
        self.live += 1
        place._obj.value = len(self.objects) + 1
        self.objects[place._obj.value] = value
        return 0

    def destroy(self, made):
        self.live -= 1
        return 0

    def set_attribute(self, made, attribute, value, size):
        assert size.value == ctypes.sizeof(value._obj)
        self.objects[made.value][attribute] = value._obj.value
        return 0

    def cublasLtMatmulDescCreate(self, place, compute, scale):
        return self.new(place, {"compute": compute})

    def cublasLtMatmulPreferenceCreate(self, place):
        return self.new(place, {})

    def cublasLtMatrixLayoutCreate(self, place, type, rows, cols, step):
        return self.new(place, (TYPES[type], rows.value, cols.value, step.value))

    def cublasLtMatmulAlgoGetHeuristic(self, handle, product, *others):
        preference, _, best, found = others[-4:]
        self.asked = self.objects[preference.value]
        best._obj.algorithm[0] = 42
        found._obj.value = self.algorithms
        return 0

    def at(self, pointer, layout):
        """A matrix by columns, as a tensor [rows, cols] on its memory."""
        dtype, rows, cols, step = self.objects[layout.value]
        size = torch.empty(0, dtype=dtype).element_size()
        raw = (ctypes.c_uint8 * (((cols - 1) * step + rows) * size)).from_address(pointer.value)
        return torch.frombuffer(raw, dtype=dtype).as_strided((rows, cols), (1, step))

    def cublasLtMatmul(self, handle, product, alpha, a, la, b, lb, beta, c, lc, d, ld, algorithm, *rest):
        workspace, size, stream = rest
        assert algorithm._obj[0] == 42 and size.value == 32 << 20 and stream.value == 5 and workspace.value
        self.product = self.objects[product.value]
        first, second = (
            x.mT if self.product[attribute] else x for attribute, x in ((3, self.at(a, la)), (4, self.at(b, lb)))
        )
        out = alpha._obj.value * (first.double() @ second.double())
        if beta._obj.value:
            out += beta._obj.value * self.at(c, lc).double()
        self.at(d, ld).copy_(out)
        return 0


def test_values_are_those_of_the_headers():
    nvidia = importlib.util.find_spec("nvidia")
    folders = [] if nvidia is None else nvidia.submodule_search_locations
    headers = [path for folder in folders for path in pathlib.Path(folder).rglob("cublasLt.h")]
    if not headers:
        pytest.skip("no cublasLt.h: the package nvidia-cublas is not installed")
    names = ("cublasLt.h", "cublas_api.h", "library_types.h")
    text = "".join((headers[0].parent / name).read_text() for name in names if (headers[0].parent / name).exists())
    values = dict(re.findall(r"^\s*((?:CUBLAS|CUDA_R_)\w*)\s*=\s*(\d+)", text, re.MULTILINE))
    for name, value in (
        ("CUBLASLT_MATMUL_DESC_TRANSA", cublaslt._TRANSPOSE_FIRST),
        ("CUBLASLT_MATMUL_DESC_TRANSB", cublaslt._TRANSPOSE_SECOND),
        ("CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET", cublaslt._SM_COUNT),
        ("CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES", cublaslt._WORKSPACE),
        ("CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK", cublaslt._REDUCTIONS),
        *((f"CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{x}_BYTES", cublaslt._ALIGNMENTS["ABCD".index(x)]) for x in "ABCD"),
        ("CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE", cublaslt._IN_FLOAT32),
        ("CUBLAS_COMPUTE_32F", cublaslt._COMPUTE_F32),
        ("CUBLAS_COMPUTE_32F_FAST_TF32", cublaslt._COMPUTE_TF32),
        ("CUBLAS_STATUS_NOT_SUPPORTED", cublaslt._NOT_SUPPORTED),
    ):
        assert int(values[name]) == value, name
    if "CUDA_R_32F" in values:  # library_types.h is of nvidia-cuda-runtime
        for name, kind in (("bfloat16", "16BF"), ("float16", "16F"), ("float32", "32F"), ("float8_e4m3fn", "8F_E4M3")):
            assert int(values[f"CUDA_R_{kind}"]) == cublaslt._TYPES[name]


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def multiply(functions, a, b, d, c=None, num_sms=0):
    cublaslt.multiply(cublaslt.Library(functions), ctypes.c_void_p(7), 5, a, b, c, d, num_sms)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float8_e4m3fn, torch.float32))
@pytest.mark.parametrize("out", (torch.bfloat16, torch.float32))
@pytest.mark.parametrize("added", (None, "c", "d"))
def test_what_it_is_asked_for_is_the_product_in_each_layout(dtype, out, added):
    a, b = random(M, K, dtype=dtype), random(N, K, dtype=dtype)
    for x in (a, a.t().contiguous().t(), random(M, 2 * K, dtype=dtype)[:, :K]):
        for y in (b, b.t().contiguous().t()):
            d = torch.full((M, N + 8), 3, dtype=out)[:, :N]
            c = {None: None, "c": torch.full((M, N), 5, dtype=out), "d": d}[added]
            want = (x.double() @ y.double().T) + {None: 0, "c": 5, "d": 3}[added]
            multiply(StandIn(), x, y, d, c)
            assert torch.equal(d, want.to(out))


def test_limits_and_alignments_reach_it():
    a, b, functions = random(M, K), random(N, K), StandIn()
    d = torch.empty(M * N + 8, dtype=torch.bfloat16)[4 : 4 + M * N].view(M, N)
    multiply(functions, a, b, d, num_sms=64)
    assert functions.product[15] == 64 and functions.product["compute"] == 68
    assert functions.asked[1] == 32 << 20 and functions.asked[8] == 8
    for attribute, x in ((5, b), (6, a)):
        assert x.data_ptr() % functions.asked[attribute] == 0
    multiply(functions, random(M, K, dtype=torch.float32), random(N, K, dtype=torch.float32), d.float())
    assert functions.product["compute"] == 77 and 15 not in functions.product


def test_a_problem_is_prepared_once_and_given_back():
    a, b, functions = random(M, K), random(N, K), StandIn()
    cublaslt._product.cache_clear()
    library = cublaslt.Library(functions)
    d = torch.empty((M, N), dtype=torch.bfloat16)
    for _ in range(2):
        cublaslt.multiply(library, ctypes.c_void_p(7), 5, a, b, None, d, 0)
    assert functions.live == 6
    cublaslt._product.cache_clear()
    assert functions.live == 0


def test_what_it_does_not_do_is_said():
    a, b, d = random(M, K), random(N, K), torch.empty((M, N), dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"^cuBLASLt: has no algorithm for these types and layouts; on Hopper"):
        multiply(StandIn(algorithms=0), a, b, d)
    functions = StandIn()
    functions.cublasLtMatmul = lambda *arguments: 14
    with pytest.raises(RuntimeError, match=r"^cuBLASLt: cublasLtMatmul failed with status 14"):
        multiply(functions, a, b, d)


def test_where_it_is_not_installed_that_is_said(monkeypatch):
    def not_found(file, mode):
        raise OSError(f"{file}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", not_found)
    with pytest.raises(RuntimeError, match=r"^cuBLASLt: is not found; pip install .* libcublasLt\.so: cannot open"):
        cublaslt._library.__wrapped__()


def test_arguments_are_checked_before_it_is_opened(monkeypatch):
    monkeypatch.setattr(cublaslt, "_library", None)
    a, b, d = random(M, K), random(N, K), torch.full((M, N), 7, dtype=torch.bfloat16)
    call = deep_gemm.cublaslt_gemm_nt
    for arguments, sentence in (
        ((a[None], b, d), "a: has 3 dimensions, must have 2"),
        ((a.to(torch.int32), b, d), "a: has dtype torch.int32, must be one of float32"),
        ((a[:, ::2], b[:, ::2], d), r"a: has strides \[32, 2\], one must be 1"),
        ((a, b.t(), d), r"d: has shape \[24, 16\], a \[24, 32\] and b \[32, 16\], must be .* which of nt, nn, tn and"),
        ((a, b, torch.empty((N, M), dtype=torch.bfloat16).t()), "d: has column stride 24, must be 1"),
        ((a, b, d, d.float()), "c: is torch.float32 .* must be torch.bfloat16"),
        ((a, torch._neg_view(b), d), r"b: is a view that negates what lies in memory; pass b\.resolve_neg\(\)"),
        ((a, b, d, torch._neg_view(d)), "c: is a view that negates"),
        ((a, b, d), "a: is on cpu, must be on one GPU with the others for cuBLASLt"),
    ):
        with pytest.raises(RuntimeError, match=f"^{sentence}"):
            call(*arguments)
    assert (d == 7).all()


def test_nothing_to_multiply_needs_no_gpu():
    a, b, d = random(M, 0), random(N, 0), torch.full((M, N), 7, dtype=torch.bfloat16)
    deep_gemm.cublaslt_gemm_nt(a, b, d, d)
    assert (d == 7).all()
    deep_gemm.cublaslt_gemm_nt(a, b, d, torch.full_like(d, 5))
    assert (d == 5).all()
    deep_gemm.cublaslt_gemm_nt(a, b, d)
    assert (d == 0).all()
    deep_gemm.cublaslt_gemm_nt(random(0, K), random(N, K), d[:0])


@needs_gpu
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float8_e4m3fn))
@pytest.mark.parametrize("out", (torch.bfloat16, torch.float32))
@pytest.mark.parametrize("added", (False, True))
def test_each_form_multiplies_on_a_gpu(dtype, out, added):
    a, b = (random(*shape).cuda().to(dtype) for shape in ((256, 384), (128, 384)))
    want = (a.double() @ b.double().T).to(out)
    forms = {"nt": (a, b)}
    if dtype == torch.bfloat16:  # Hopper multiplies FP8 of K-major memory alone
        at, bt = (x.t().contiguous() for x in (a, b))
        forms |= {"nn": (a, bt), "tn": (at, bt), "tt": (at, b)}
    for form, operands in forms.items():
        d = torch.full((256, 128), 2, dtype=out, device="cuda")
        getattr(deep_gemm, f"cublaslt_gemm_{form}")(*operands, d, d if added else None)
        exact = want.double() + 2 * added
        # Tensor cores keep about 14 bits of the sums of FP8 products, so much of the largest that was added up.
        atol = 1e-3 if dtype == torch.bfloat16 else 2**-12 * float((a.double().abs() @ b.double().abs().T).max())
        torch.testing.assert_close(d.double(), exact, rtol=2 * torch.finfo(out).eps + 1e-5, atol=atol)


@pytest.mark.parametrize("device", ("cuda",) if hopper() else ("cpu",))
@pytest.mark.parametrize("batch", ((), (3,)))
def test_symmetric_products(device, batch):
    a = random(*batch, 16, 24, dtype=torch.float32).to(device)
    d = torch.empty((*batch, 16, 16), device=device)
    deep_gemm.batched_syrk(a, d)
    torch.testing.assert_close(d, a @ a.mT)
    out = torch.empty_like(a)
    deep_gemm.batched_symm(d, a, out)
    torch.testing.assert_close(out, d @ a)
    with pytest.raises(RuntimeError, match=r"^d: is torch\.float32 of shape .* must be torch\.float32 of shape"):
        deep_gemm.batched_syrk(a, out)
