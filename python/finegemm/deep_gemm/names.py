"""What becomes of each name of DeepGEMM, as the table of docs/from-deepgemm.md."""

from collections.abc import Iterator

from .missing import REASONS

_EITHER_SCALES = "`c`, `alpha` and float32 with either scales of B; row scales of B `[N, K/128]` need no recipe"

# Names, our own call in their place, and what differs.
_SERVED = (
    (
        "fp8_gemm_nt fp8_fp4_gemm_nt fp4_gemm_nt",
        "`gemm(a, sfa, b, sfb, d)`",
        f"`d` float16 too; {_EITHER_SCALES}; FP4 raises",
    ),
    (
        "fp8_gemm_nn fp8_gemm_tn fp8_gemm_tt fp8_fp4_gemm_nn fp8_fp4_gemm_tn fp8_fp4_gemm_tt",
        "`gemm` of transposed views",
        "memory is K-major, as on Hopper there",
    ),
    (
        "m_grouped_fp8_gemm_nt_contiguous m_grouped_fp8_fp4_gemm_nt_contiguous m_grouped_fp4_gemm_nt_contiguous "
        "m_grouped_fp8_gemm_nn_contiguous m_grouped_fp8_fp4_gemm_nn_contiguous",
        "`grouped_gemm(..., m_indices=)` or `prefix_sums=`",
        "`d` float16 and float32 too; M need not be a multiple of the alignment; B may have scales for each row; rows "
        "of -1 become zero, rows between groups of ends are not written",
    ),
    (
        "m_grouped_fp8_gemm_nt_masked m_grouped_fp8_fp4_gemm_nt_masked fp8_m_grouped_gemm_nt_masked "
        "m_grouped_fp4_gemm_nt_masked",
        "`grouped_gemm(..., masked_m=)`",
        "`d` float16 and float32 too; rows behind `masked_m` are not written; without rows a call does nothing",
    ),
    ("k_grouped_fp8_gemm_nt_contiguous", "`k_grouped_gemm(..., sizes=)`", "`c=None`: d becomes the product"),
    ("bf16_gemm_nt", "`gemm(a, None, b, None, d)`", "`d` float16 too; `c` and `alpha` with each"),
    (
        "bf16_gemm_nn bf16_gemm_tn bf16_gemm_tt",
        "`gemm` of transposed views",
        "memory of either layout; `d` float16 too; `c` and `alpha` with each",
    ),
    (
        "m_grouped_bf16_gemm_nt_contiguous m_grouped_bf16_gemm_nt_masked bf16_m_grouped_gemm_nt_masked",
        "`grouped_gemm(a, None, b, None, ...)`",
        "`d` float32 too; K a multiple of 8",
    ),
    (
        "m_grouped_bf16_gemm_nn_contiguous",
        "`grouped_gemm` of transposed views",
        "memory of either layout",
    ),
    (
        "k_grouped_bf16_gemm_tn_contiguous",
        "`k_grouped_gemm(a, None, b, None, sizes=)`",
        "a `[K, M]` and b `[K, N]` are contiguous, or both views of K-major memory; `c=None`: d becomes the product",
    ),
    (
        "legacy.m_grouped_bf16_gemm_nt_contiguous_tl legacy.m_grouped_bf16_gemm_nn_contiguous_tl",
        "`grouped_gemm`",
        "the functions without `_tl`; no Triton",
    ),
    (
        "legacy.a_fused_m_grouped_bf16_gemm_nt_contiguous_tl legacy.a_fused_m_grouped_bf16_gemm_nn_contiguous_tl "
        "legacy.a_fused_k_grouped_bf16_gemm_tn_contiguous_tl legacy.b_fused_k_grouped_bf16_gemm_tn_contiguous_tl",
        "`grouped_gemm`, `k_grouped_gemm(..., offsets=)`",
        "rows are gathered by `torch.index_select` before; k begin at multiples of 128",
    ),
    (
        "fp8_einsum",
        "`einsum(..., sfa=, sfb=)`",
        "`bhr,hdr->bhd` alone, of scales for 128x128 blocks of b; `d` float16 and float32 too",
    ),
    (
        "einsum",
        "`einsum`",
        "`bhr,hdr->bhd` and `bhd,hdr->bhr`, into float32 too; `bhd,bhr->hdr`, a product for each head, with any `c`; "
        "`bmk,bnk->mn` with `c`, which is d; without, its d of float32 becomes the product",
    ),
    (
        "m_grouped_mxfp8_fp8_gemm_nt_contiguous m_grouped_mxfp8_fp8_gemm_nt_masked",
        "`grouped_gemm` with [words of exponents](mxfp8.md)",
        "of a fork for Hopper; scales of float8_e8m0fnu and float32, too, in any strides; 128 of K for b beside 32 for "
        "a must be powers of two",
    ),
    (
        "fp8_mqa_logits fp8_fp4_mqa_logits",
        "`mqa_logits`",
        "8 and 16 heads too; weights with any row stride; no key, or no query, is no error; FP4 raises",
    ),
    (
        "fp8_paged_mqa_logits fp8_fp4_paged_mqa_logits",
        "`paged_mqa_logits`",
        "pages of 4, 16, 32 and 64; next_n to 8; context_lens `[B]` or `[B, next_n]`; a schedule of any slots, which "
        "kernels do not read, or None; `clean_logits` fills with -inf; nothing is written behind a query's own keys",
    ),
    (
        "get_paged_mqa_logits_metadata",
        "`paged_mqa_schedule`",
        "any context_lens, `[B]` too, 0 in all of them; any `num_sms`",
    ),
    (
        "tf32_hc_prenorm_gemm",
        "`prenorm_gemm`",
        "slices that have no part of K are zero; rows of `a` at multiples of 16 bytes",
    ),
    (
        "fp8_gemm_nt_skip_head_mid",
        "`gemm` with `head_left`, `head_gap`, `head_right`",
        "any widths; by copies where one is no multiple of 8, and into float16 or float32",
    ),
    (
        "cublaslt_gemm_nt cublaslt_gemm_nn cublaslt_gemm_tn cublaslt_gemm_tt",
        "",
        "by cuBLASLt of an installed CUDA, opened by the first call; `num_sms` and `c` reach it; Hopper's has FP8 of "
        "K-major memory alone",
    ),
    ("batched_syrk batched_symm", "", "by `torch.matmul`"),
    (
        "set_num_sms get_num_sms",
        "`num_sms=` of a call",
        "odd numbers too; no setting touches the GPU before CUDA is initialised",
    ),
    ("set_pdl get_pdl", "`pdl=` of a call", ""),
    (
        "set_mk_alignment_for_contiguous_layout get_mk_alignment_for_contiguous_layout "
        "get_m_alignment_for_contiguous_layout get_k_alignment_for_contiguous_layout",
        "`alignment=` of a call",
        "",
    ),
    ("get_theoretical_mk_alignment_for_contiguous_layout", "", "128"),
    (
        "set_tc_util get_tc_util set_ignore_compile_dims set_block_size_multiple_of use_deterministic_algorithms",
        "",
        "kept, without effect: bits do not change from call to call",
    ),
    (
        "get_tma_aligned_size get_mn_major_tma_aligned_tensor get_mn_major_tma_aligned_packed_ue8m0_tensor "
        "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor transform_sf_into_required_layout",
        "`scale_layout`; products need it not: any strides",
        "scales of any strides are packed, and `k_alignment` may be left out",
    ),
    (
        "per_token_cast_to_fp8 per_block_cast_to_fp8",
        "`quantize_rows`, `quantize_blocks`",
        "by torch, to DeepGEMM's rule (least magnitude 1e-4); [ours](scales.md#what-quantisation-makes) differs for "
        "zeros, tiny and infinite values",
    ),
    (
        "per_channel_cast_to_fp8 per_custom_dims_cast_to_fp8 per_token_cast_to_fp4 transpose_packed_fp4 "
        "cast_back_from_fp4 cast_back_from_fp8 ceil_to_ue8m0 pack_ue8m0_to_int unpack_ue8m0_from_int ceil_div align",
        "",
        "by torch's operations",
    ),
    (
        "testing.bench testing.bench_kineto testing.empty_suppress testing.suppress_stdout_stderr testing.calc_diff "
        "testing.count_bytes testing.assert_bitwise_equal testing.get_arch_major testing.test_filter "
        "testing.ignore_env init_dist uneven_all_gather utils.dist.dist_print",
        "",
        "",
    ),
    ("testing utils mega legacy envs math layout dist _C _C.init __version__", "", "`_C.init` has nothing to do"),
)
_NO_FUNCTIONS = {"SymmBuffer": "fp8_fp4_mega_moe"}  # raises for the reason of that one
_IN_C = ("get_ring_limit_for_mega_moe", "get_symm_buffer_size_for_mega_moe")


def table() -> list[str]:
    """Lines of Markdown: a row for names that are alike."""
    rows = [("DeepGEMM", "", "FineGEMM's own call", "differs"), ("---",) * 4]
    rows += [(_code(names), "served", own, differs) for names, own, differs in _SERVED]
    rows += [(_code(names), "raises", "", reason) for names, reason in _raising()]
    return [f"| {' | '.join(row)} |" for row in rows]


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())


def _raising() -> Iterator[tuple[str, str]]:
    """Names that raise for the same reason."""
    reasons = REASONS | {name: REASONS[like] for name, like in _NO_FUNCTIONS.items()}
    for reason in dict.fromkeys(reasons.values()):
        yield " ".join(_place(name) for name, r in reasons.items() if r == reason), reason


def _place(name: str) -> str:
    return f"_C.{name}" if name in _IN_C else name
