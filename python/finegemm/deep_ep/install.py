"""`import deep_ep` for this package."""

from finegemm.aliases import Alias

alias = Alias("deep_ep")
answer_to = alias.answer_to  # what the folder in site-packages calls
