"""tools/gen_fields.py writes each field of a product where other languages have to name it."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import gen_fields

LIST, SHAPE, TYPES, C_API, OPS = (
    (gen_fields.ROOT / path).read_text()
    for path in (gen_fields.LIST, gen_fields.SHAPE, gen_fields.TYPES, gen_fields.C_API, gen_fields.OPS)
)
# One field more.
LONGER_LIST = LIST.replace(
    "    visit(Field{",
    '    visit(Field{"bias", kAll, "A row that is added to D"}, shapes.bias...);\n    visit(Field{',
    1,
)
LONGER_SHAPE = SHAPE.replace("    bool row_b_scales", "    bool bias = false;  ///< or not\n    bool row_b_scales", 1)


def members(text: str) -> str:
    return gen_fields.STRUCTS["shape"].search(text)[2]


class Fields(unittest.TestCase):
    def test_the_list_is_read_with_the_types_of_the_shape(self):
        listed = gen_fields.fields(LIST, SHAPE)
        self.assertEqual(len(listed), LIST.count("visit(Field{"))
        types = {f.name: f.type for f in listed}
        self.assertEqual(types["row_b_scales"], "bool")
        self.assertEqual(types["k_groups"], "std::optional<int64_t>")
        self.assertEqual(types["num_sms"], "int32_t")

    def test_a_new_field_is_the_last_member_of_the_c_struct(self):
        listed = gen_fields.fields(LONGER_LIST, LONGER_SHAPE)
        longer = gen_fields.c_api(C_API, listed)
        self.assertEqual(members(longer), members(C_API) + "    int64_t bias; /* A row that is added to D */\n")
        self.assertEqual(gen_fields.c_api(longer, listed), longer)

    def test_a_new_field_is_a_keyword_with_its_meaning(self):
        text = gen_fields.ops(OPS, gen_fields.fields(LONGER_LIST, LONGER_SHAPE), TYPES)
        self.assertIn("    bias: bool = False,\n    dtype: ", text)
        self.assertIn("    `bias`: A row that is added to D.\n    `dtype`: ", text)

    def test_a_new_argument_of_an_epilogue_is_in_c_and_of_the_products_that_take_it(self):
        row = '    visit(A{"slope", Finish::Affine, "Of D"}, epilogues.slope...);\n'
        listed = LIST.replace("    visit(A{", row + "    visit(A{", 1)
        shape = SHAPE.replace("    float alpha", "    float slope = 0.5;\n    float alpha", 1)
        given = gen_fields.arguments(listed, shape)
        self.assertIn("    double slope; /* Of D */\n} finegemm_epilogue;", gen_fields.c_api(C_API, given, "epilogue"))
        text = gen_fields.products(OPS, given)
        self.assertEqual(text.count("    slope: float = 0.5,\n    alpha: float = 1.0,"), 2)
        dense = LIST.replace('"affine", kDenseOrRows', '"affine", kDense')
        self.assertNotIn("    alpha: ", gen_fields.keywords_of("Rows", gen_fields.arguments(dense, SHAPE)))

    def refusal(self, *texts: str) -> str:
        with self.assertRaises(SystemExit) as caught:
            listed = gen_fields.fields(*texts)
            gen_fields.c_api(C_API, listed), gen_fields.ops(OPS, listed, TYPES)
        return str(caught.exception)

    def test_what_it_cannot_write_is_refused(self):
        self.assertIn("GemmShape has no member bias", self.refusal(LONGER_LIST, SHAPE))
        self.assertIn("bias is of double", self.refusal(LONGER_LIST, LONGER_SHAPE.replace("bool bias", "double bias")))
        self.assertIn("is not of the form", self.refusal(LIST.replace('"num_sms", ', "kNumSms, "), SHAPE))
        without = LIST.replace('visit(Field{"num_sms"', '// (Field{"num_sms"')
        self.assertIn("finegemm_shape has 'num_sms'", self.refusal(without, SHAPE))


if __name__ == "__main__":
    unittest.main()
