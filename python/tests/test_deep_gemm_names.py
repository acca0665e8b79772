"""finegemm.deep_gemm: which names there are, how they are called, and what those say that are not served."""

import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import finegemm
from finegemm import deep_gemm
from finegemm.deep_gemm import names
from finegemm.torch_module import torch


def words(text):
    return text.split()


DENSE = (
    "a, b, d, c=None, recipe=None, recipe_a=None, recipe_b=None, compiled_dims={}, disable_ue8m0_cast=False, alpha=None"
)
CONTIGUOUS = (
    "a, b, d, grouped_layout=None, recipe=None, recipe_a=None, recipe_b=None, compiled_dims='nk', "
    "disable_ue8m0_cast=False, use_psum_layout=False, ensure_zero_padding=True"
)
BF16 = "a, b, d, c=None, compiled_dims={}, alpha=None"
BF16_CONTIGUOUS = "a, b, d, grouped_layout=None, compiled_dims='nk', use_psum_layout=False, ensure_zero_padding=True"
SERVED = {
    "fp8_fp4_gemm_nt": DENSE.format("'nk'"),
    "fp8_fp4_gemm_nn": DENSE.format("'nk'"),
    "fp8_fp4_gemm_tn": DENSE.format("'mn'"),
    "fp8_fp4_gemm_tt": DENSE.format("'mn'"),
    "fp8_gemm_nt_skip_head_mid": "a, b, d, head_splits, recipe=None, compiled_dims='nk', disable_ue8m0_cast=False",
    "m_grouped_fp8_fp4_gemm_nt_contiguous": CONTIGUOUS + ", expected_m_for_psum_layout=None",
    "m_grouped_fp8_fp4_gemm_nn_contiguous": CONTIGUOUS,
    "m_grouped_fp8_fp4_gemm_nt_masked": "a, b, d, masked_m, expected_m, recipe=None, recipe_a=None, recipe_b=None, "
    "compiled_dims='nk', disable_ue8m0_cast=False",
    "m_grouped_mxfp8_fp8_gemm_nt_contiguous": "a, b, d, grouped_layout, compiled_dims='nk', recipe_a=None, "
    "recipe_b=None",
    "m_grouped_mxfp8_fp8_gemm_nt_masked": "a, b, d, masked_m, expected_m, compiled_dims='nk', recipe_a=None, "
    "recipe_b=None",
    "k_grouped_fp8_gemm_nt_contiguous": "a, b, d, ks_cpu=None, grouped_layout=None, c=None, recipe=(1, 1, 128), "
    "compiled_dims='mn', use_psum_layout=False",
    "bf16_gemm_nt": BF16.format("'nk'"),
    "bf16_gemm_nn": BF16.format("'nk'"),
    "bf16_gemm_tn": BF16.format("'mn'"),
    "bf16_gemm_tt": BF16.format("'mn'"),
    "m_grouped_bf16_gemm_nt_contiguous": BF16_CONTIGUOUS + ", expected_m_for_psum_layout=None",
    "m_grouped_bf16_gemm_nn_contiguous": BF16_CONTIGUOUS,
    "m_grouped_bf16_gemm_nt_masked": "a, b, d, masked_m, expected_m, compiled_dims='nk'",
    "k_grouped_bf16_gemm_tn_contiguous": "a, b, d, ks_cpu=None, grouped_layout=None, c=None, compiled_dims='mn', "
    "use_psum_layout=False",
    **dict.fromkeys(
        ("cublaslt_gemm_nt", "cublaslt_gemm_nn", "cublaslt_gemm_tn", "cublaslt_gemm_tt"), "a, b, d, c=None"
    ),
    "batched_syrk": "a, d",
    "batched_symm": "a, b, d",
    "einsum": "expr, a, b, d, c=None, use_cublaslt=False",
    "fp8_einsum": "expr, a, b, d, c=None, recipe=(1, 128, 128)",
    "transform_sf_into_required_layout": "sf, mn, k, recipe, num_groups=None, is_sfa=None, disable_ue8m0_cast=False, "
    "psum_layout=None",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor": "sf, psum_layout=None",
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor": "sf, grouped_layout, ks_cpu, gran_k, k_alignment=128, "
    "use_psum_layout=False",
    "get_theoretical_mk_alignment_for_contiguous_layout": "expected_m=None, num_groups=None",
    "per_token_cast_to_fp8": "x, use_ue8m0, gran_k=128, use_packed_ue8m0=False",
    "per_channel_cast_to_fp8": "x, use_ue8m0, gran_k=128",
    "per_block_cast_to_fp8": "x, use_ue8m0, gran_k=128",
    "per_custom_dims_cast_to_fp8": "x, dims, use_ue8m0",
    "per_token_cast_to_fp4": "x, use_ue8m0, gran_k=128, use_packed_ue8m0=False",
    "cast_back_from_fp4": "packed, sf, gran_k=128, use_packed_ue8m0=False",
    "cast_back_from_fp8": "x, sf, gran_k=128, use_packed_ue8m0=False",
    "fp8_fp4_mqa_logits": "q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, clean_logits=True, max_seqlen_k=0, "
    "logits_dtype=torch.float32, schedule_meta=None",
    "fp8_mqa_logits": "q, kv, weights, cu_seq_len_k_start, cu_seq_len_k_end, clean_logits=True, max_seqlen_k=0",
    "get_paged_mqa_logits_metadata": "context_lens, block_kv, num_sms, indices=None",
    "fp8_fp4_paged_mqa_logits": "q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, "
    "clean_logits=False, logits_dtype=torch.float32, indices=None",
    "fp8_paged_mqa_logits": "q, kv_cache, weights, context_lens, block_table, schedule_meta, max_context_len, "
    "clean_logits=False, indices=None",
    "tf32_hc_prenorm_gemm": "a, b, d, sqr_sum, num_splits=None",
    **dict.fromkeys(
        (f"legacy.a_fused_m_grouped_bf16_gemm_{form}_contiguous_tl" for form in ("nt", "nn")), "a, b, d, indices"
    ),
    **dict.fromkeys(
        (f"legacy.{of}_fused_k_grouped_bf16_gemm_tn_contiguous_tl" for of in "ab"), "a, b, d, indices, acc"
    ),
    "testing.bench": "fn, num_warmups=5, num_tests=10, high_precision=False",
    "testing.bench_kineto": "fn, kernel_names, num_tests=30, suppress_kineto_output=False, trace_path=None, "
    "flush_l2=True, with_multiple_kernels=False, barrier=None",
    "testing.assert_bitwise_equal": "x, y, label=''",
}
ALIASES = {
    "fp8_gemm_nt": "fp8_fp4_gemm_nt",
    "fp4_gemm_nt": "fp8_fp4_gemm_nt",
    "fp8_gemm_nn": "fp8_fp4_gemm_nn",
    "fp8_gemm_tn": "fp8_fp4_gemm_tn",
    "fp8_gemm_tt": "fp8_fp4_gemm_tt",
    "m_grouped_fp8_gemm_nt_contiguous": "m_grouped_fp8_fp4_gemm_nt_contiguous",
    "m_grouped_fp4_gemm_nt_contiguous": "m_grouped_fp8_fp4_gemm_nt_contiguous",
    "m_grouped_fp8_gemm_nn_contiguous": "m_grouped_fp8_fp4_gemm_nn_contiguous",
    "m_grouped_fp8_gemm_nt_masked": "m_grouped_fp8_fp4_gemm_nt_masked",
    "m_grouped_fp4_gemm_nt_masked": "m_grouped_fp8_fp4_gemm_nt_masked",
    "fp8_m_grouped_gemm_nt_masked": "m_grouped_fp8_fp4_gemm_nt_masked",
    "bf16_m_grouped_gemm_nt_masked": "m_grouped_bf16_gemm_nt_masked",
    "legacy.m_grouped_bf16_gemm_nt_contiguous_tl": "m_grouped_bf16_gemm_nt_contiguous",
    "legacy.m_grouped_bf16_gemm_nn_contiguous_tl": "m_grouped_bf16_gemm_nn_contiguous",
    "get_m_alignment_for_contiguous_layout": "get_mk_alignment_for_contiguous_layout",
    "get_k_alignment_for_contiguous_layout": "get_mk_alignment_for_contiguous_layout",
}
OTHERS = words("""
set_num_sms get_num_sms set_tc_util get_tc_util set_ignore_compile_dims set_block_size_multiple_of set_pdl get_pdl
use_deterministic_algorithms set_mk_alignment_for_contiguous_layout get_mk_alignment_for_contiguous_layout
get_tma_aligned_size get_mn_major_tma_aligned_tensor ceil_div align ceil_to_ue8m0 pack_ue8m0_to_int
unpack_ue8m0_from_int transpose_packed_fp4 init_dist uneven_all_gather __version__ __path__
utils.layout.get_mn_major_tma_aligned_tensor utils.math.ceil_div utils.dist.dist_print math layout dist
testing.calc_diff testing.count_bytes testing.get_arch_major testing.test_filter testing.ignore_env
testing.empty_suppress testing.suppress_stdout_stderr envs.persistent_envs _C.init
""")
NOT_SERVED = words("""
k_grouped_fp8_gemm_tn_contiguous k_grouped_fp4_gemm_nt_contiguous cublaslt_nvfp4_gemm_nt
get_mqa_logits_metadata get_sparse_mqa_logits_metadata get_paged_sparse_mqa_logits_metadata fp8_fp4_sparse_mqa_logits
fp8_fp4_paged_sparse_mqa_logits SymmBuffer get_symm_buffer_for_mega_moe transform_weights_for_mega_moe fp8_fp4_mega_moe
bf16_mega_moe bf16_mega_gate get_bf16_mega_gate_config mega_mhc get_token_alignment_for_mega_moe
get_block_m_for_mega_moe mega.fp8_fp4_mega_moe mega.SymmBuffer _C.get_ring_limit_for_mega_moe
_C.get_symm_buffer_size_for_mega_moe
""")
# Programs take these names for features where they exist.
ABSENT = words("""
set_compile_mode get_compile_mode compile_only_fp8_fp4_gemm_nt get_symm_buffer_for_sm90_mega_moe fp8_mega_moe
""")


def named(name):
    found = deep_gemm
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", SERVED)
def test_arguments_have_their_names_order_and_defaults(name):
    def text(x):
        return x.name if x.default is x.empty else f"{x.name}={x.default!r}"

    parameters = inspect.signature(named(name)).parameters.values()
    expected = SERVED[name] if torch is not None else SERVED[name].replace("torch.float32", "None")
    assert ", ".join(text(p) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD) == expected


def test_names_of_one_function_are_one_object():
    for alias, name in ALIASES.items():
        assert named(alias) is named(name), alias


def test_every_other_name_exists():
    for name in OTHERS:
        assert named(name) is not None, name


@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_is_not_served_says_so_when_it_is_called(name):
    with pytest.raises(RuntimeError, match=rf"^{name.rpartition('.')[2]}: .*(meanwhile|on Hopper (call|compute) )"):
        named(name)(1, 2, recipe=None)


def test_what_is_not_served_is_listed_here():
    listed = {name.rpartition(".")[2] for name in NOT_SERVED}
    assert listed - {"SymmBuffer"} == set(deep_gemm.missing.REASONS)


def rows_of_table():
    """(names, what becomes of them) of each row that the package prints."""
    for line in names.table()[2:]:
        first, kind, *_ = line.removeprefix("| ").split(" | ")
        yield [name.strip("`") for name in first.split(", ")], kind


@pytest.mark.parametrize("kind, wanted", [("served", [*SERVED, *ALIASES, *OTHERS]), ("raises", NOT_SERVED)])
def test_the_table_has_each_name_once(kind, wanted):
    said = [name for row, what in rows_of_table() if what == kind for name in row]
    assert len(set(said)) == len(said)
    for name in said:
        assert named(name) is not None
    short = {name.rpartition(".")[2] for name in said}
    assert {name.rpartition(".")[2] for name in wanted} - {"__path__", "persistent_envs"} <= short


def test_documents_have_the_table():
    path = pathlib.Path(__file__).parents[2] / "docs" / "from-deepgemm.md"
    begin, end, text = "<!-- names -->\n", "<!-- end of names -->", path.read_text()
    wanted = begin + "\n".join(names.table()) + "\n" + end
    if os.environ.get("FG_UPDATE_GOLDEN"):
        text = text[: text.index(begin)] + wanted + text[text.index(end) + len(end) :]
        path.write_text(text)
    assert wanted in text


def test_names_that_stand_for_features_are_absent():
    for name in ABSENT:
        assert not hasattr(deep_gemm, name), name


def test_the_version_is_that_of_the_names_with_our_own_behind_it():
    assert deep_gemm.__version__ == f"2.6.1+finegemm.{finegemm.__version__}"


@pytest.mark.parametrize("name", ("fp8_gemm_nt", "m_grouped_fp8_gemm_nt_masked", "k_grouped_fp8_gemm_nt_contiguous"))
def test_unknown_arguments_are_type_errors(name):
    with pytest.raises(TypeError, match="unexpected keyword argument 'tile'"):
        named(name)(1, 2, 3, 4, 5, tile=7)


def test_the_import_needs_no_torch_and_is_not_part_of_ours():
    code = """
import sys
sys.modules["torch"] = None   # importing it raises ImportError
import finegemm
assert "finegemm.deep_gemm" not in sys.modules
import finegemm.deep_gemm
finegemm.deep_gemm.set_pdl(True)
finegemm.deep_gemm.set_num_sms(64)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_neither_the_import_nor_a_setting_touches_a_gpu():
    pytest.importorskip("torch", reason="torch is not installed")
    code = """
import torch
torch.cuda._lazy_init = None   # calling it raises TypeError
from finegemm import deep_gemm
from finegemm.deep_gemm import names
from finegemm.torch_module import torch
deep_gemm.set_pdl(True)
deep_gemm.set_num_sms(64)
assert (deep_gemm.get_pdl(), deep_gemm.get_num_sms()) == (True, 64) and not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
