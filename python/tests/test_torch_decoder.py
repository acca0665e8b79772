"""examples/python/moe_decoder.py: a language model whose experts are finegemm.moe."""

import re

from support import program


def test_it_names_the_tokens_that_bfloat16_names(capsys):
    assert program("examples/python/moe_decoder.py").main() == 0
    learned, same, _ = (float(share) for share in re.findall(r"([\d.]+)%", capsys.readouterr().out))
    assert learned > 90, "of what was not learned the two best are close"
    assert same >= 95


def test_other_experts_name_others(monkeypatch):
    example = program("examples/python/moe_decoder.py")
    moe = example.finegemm.moe
    monkeypatch.setattr(example.finegemm, "moe", lambda x, ids, *rest: moe(x, (ids + 1) % example.EXPERTS, *rest))
    assert example.main() == 1
