"""bench/compare_builds.py: what it reads and what it makes of times; the times themselves take a GPU."""

import re

import pytest

from support import program

compare = program("bench/compare_builds.py")


def test_a_case_is_a_shape_and_kernels():
    assert compare.case_of("64,2112,7168") == ((64, 2112, 7168), ["chosen"])
    kernels = ["m64n32s8w1_x2", "chosen"]
    assert compare.case_of(" 64,2112,7168:m64n32s8w1_x2,chosen\n") == ((64, 2112, 7168), kernels)


def test_groups_of_k_stand_before_a_case():
    assert compare.case_of("16ragged*7168,2048,2048:x") == (("16ragged", 7168, 2048, 2048), ["x"])
    with pytest.raises(SystemExit, match="groups of K stand before it"):
        compare.case_of("16odd*7168,2048,2048")


def test_sizes_of_groups_are_blocks_and_have_the_same_mean():
    assert compare.k_sizes("4even", 2048) == [2048] * 4
    assert compare.k_sizes("4sparse", 2048) == [0, 4096, 0, 4096]
    ragged = compare.k_sizes("64ragged", 2048)
    assert all(0.65 * 2048 < size < 1.35 * 2048 and size % 128 == 0 for size in ragged)
    assert len(set(ragged)) > 4 and abs(sum(ragged) / 64 / 2048 - 1) < 0.1


def test_the_table_of_groups_of_k_has_the_same_k_in_all():
    table = compare.cases_of([], [], "k-groups")
    assert len(table) == 30 and all(int(re.match(r"\d+", shape[0])[0]) * shape[3] == 32768 for shape, _ in table)


@pytest.mark.parametrize("text", ["64,2112", "64x2112x7168", "64,2112,7168:", "64,2112,7168:a,,b", "build.so"])
def test_what_is_no_case_is_said(text):
    with pytest.raises(SystemExit, match=f"'{text}' is no case: give M,N,K"):
        compare.case_of(text)


def test_cases_come_from_words_and_lines_else_they_are_the_dense_table():
    some = compare.cases_of(["1,2,3"], ["4,5,6:x", "", "  "])
    assert some == [((1, 2, 3), ["chosen"]), ((4, 5, 6), ["x"])]
    table = compare.cases_of([], [])
    assert len(table) == 84 and table[0] == ((1, 2112, 7168), ["chosen"])


class Build:
    """Has some kernels. As of the library's own calls, that another one is missing shows when it runs."""

    def __init__(self, *kernels):
        self.kernels = (None, *kernels)

    def prepare(self, a, d, config):
        def call():
            if config not in self.kernels:
                raise RuntimeError(f"config: '{config}' is not the name of a kernel")
            d.append((a, config))

        return call


def test_a_kernel_that_a_build_does_not_have_is_said_and_left_out(capsys):
    d = []

    def prepare(library, config):
        return library.prepare("operand", d, config)

    calls = compare.runnable({"a": Build("old"), "b": Build("old", "new")}, ["chosen", "old", "new"], prepare)
    assert list(calls) == [("chosen", "a"), ("chosen", "b"), ("old", "a"), ("old", "b"), ("new", "b")]
    assert capsys.readouterr().out == "new is left out of a: config: 'new' is not the name of a kernel\n"
    d.clear()
    calls["new", "b"]()
    assert d == [("operand", "new")]


TIMES = {("x", "a"): 10.0, ("x", "b"): 12.5, ("x", "c"): 10.004, ("y", "b"): 9.0, ("z", "a"): 8.0, ("z", "b"): 5.0}


def test_a_line_has_each_kernels_times_and_what_they_are_of_the_first_builds():
    rows = compare.rows_of((1, 2, 3), [TIMES], "a")
    us, of_first = {"a": 10.0, "b": 12.5, "c": 10.0}, {"b": [1.25] * 3, "c": [1.0004] * 3}
    assert rows[0] == {"shape": (1, 2, 3), "kernel": "x", "us": us, "of_first": of_first}
    line = "1,2,3; x a 10.00 b 12.50 (1.250) c 10.00 (1.000); y b 9.00; z a 8.00 b 5.00 (0.625)"
    assert compare.line_of((1, 2, 3), rows) == line


def test_repeats_show_what_the_ratio_varies_by():
    repeats = [{("x", "a"): 10.0, ("x", "b"): us} for us in (11.0, 10.0, 10.5)]
    rows = compare.rows_of((1, 2, 3), repeats, "a")
    assert compare.line_of((1, 2, 3), rows) == "1,2,3; x a 10.00 b 10.50 (1.000 1.050 1.100)"
    assert compare.ratios_of(rows, ["a", "b"])["b"]["geomean"] == 1.05


def test_ratios_are_geometric_means_over_what_both_builds_have():
    rows = compare.rows_of((1, 2, 3), [TIMES], "a")
    assert compare.ratios_of(rows, ["a", "b", "c"]) == {
        "b": {"geomean": 0.8839, "least": 0.625, "most": 1.25, "rows": 2},  # the root of 1.25 * 0.625
        "c": {"geomean": 1.0004, "least": 1.0, "most": 1.0, "rows": 1},
    }
    assert compare.ratios_of(rows[1:2], ["a", "b"]) == {}, "they have no row in common"
