"""The structs of the C ABI for ctypes, read from its headers."""

import ctypes
import pathlib
import re
from typing import Any

INCLUDE = pathlib.Path(__file__).resolve().parent.parent / "include/finegemm"
HEADERS = tuple(INCLUDE / name for name in ("c_types.h", "c_api.h", "c_ep.h", "c_four_bit.h", "c_mxfp8.h"))
TYPES: dict[str, Any] = {
    "char": ctypes.c_char,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "char*": ctypes.c_char_p,
    "void*": ctypes.c_void_p,
    "int32_t*": ctypes.c_void_p,
    "finegemm_poll": ctypes.c_void_p,
    "finegemm_log": ctypes.c_void_p,
    "finegemm_peer_memory*": ctypes.c_void_p,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


def structs(header: str) -> dict[str, type[ctypes.Structure]]:
    """By name without finegemm_."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    numbers = dict(re.findall(r"#define (\w+) (\d+)\n", code))
    types = dict(TYPES)
    for struct, body in re.findall(r"typedef struct finegemm_(\w+) \{(.*?)\}", code, re.DOTALL):
        members = []
        for type_name, names in re.findall(r"(?:const )?(\w+\*?) ([^;]+);", body):
            for name, size in re.findall(r"(\w+)(?:\[(\w+)\])?", names):
                count = int(numbers.get(size, size or 0))
                members.append((name, types[type_name] * count if count else types[type_name]))
        types[f"finegemm_{struct}*"] = ctypes.c_void_p
        types[f"finegemm_{struct}"] = type(struct, (ctypes.Structure,), {"_fields_": members})
    return {name.removeprefix("finegemm_"): t for name, t in types.items() if name not in TYPES and name[-1] != "*"}
