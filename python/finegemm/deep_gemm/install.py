"""`import deep_gemm` for this package."""

from finegemm.aliases import Alias

alias = Alias("deep_gemm")
answer_to = alias.answer_to  # what the folder in site-packages calls
