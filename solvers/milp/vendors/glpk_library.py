"""The library that swiglpk brings, called through ctypes.

swiglpk itself holds Python's lock during a call and cannot pass a Python function to the search. It still gives the
constants and the parameter blocks.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import swiglpk

Hook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_P, _I, _D, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_char_p
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "glp_create_prob": (_P, ()),
    "glp_delete_prob": (None, (_P,)),
    "glp_get_col_prim": (_D, (_P, _I)),
    "glp_get_it_cnt": (_I, (_P,)),
    "glp_get_num_cols": (_I, (_P,)),
    "glp_get_obj_val": (_D, (_P,)),
    "glp_get_status": (_I, (_P,)),
    "glp_intopt": (_I, (_P, _P)),
    "glp_ios_best_node": (_I, (_P,)),
    "glp_ios_get_prob": (_P, (_P,)),
    "glp_ios_heur_sol": (_I, (_P, ctypes.POINTER(_D))),
    "glp_ios_node_bound": (_D, (_P, _I)),
    "glp_ios_reason": (_I, (_P,)),
    "glp_ios_terminate": (None, (_P,)),
    "glp_mip_col_val": (_D, (_P, _I)),
    "glp_mip_obj_val": (_D, (_P,)),
    "glp_mip_status": (_I, (_P,)),
    "glp_read_mps": (_I, (_P, _I, _P, _S)),
    "glp_simplex": (_I, (_P, _P)),
    "glp_term_hook": (None, (Hook, _P)),
}


class _Iocp(ctypes.Structure):
    """The head of `glp_iocp` as glpk.h declares it."""

    _fields_ = (
        ("msg_lev", _I), ("br_tech", _I), ("bt_tech", _I), ("tol_int", _D), ("tol_obj", _D), ("tm_lim", _I),
        ("out_frq", _I), ("out_dly", _I), ("cb_func", _Callback), ("cb_info", _P), ("cb_size", _I),
    )  # fmt: skip


def load() -> ctypes.CDLL:
    """The library, every function with its signature."""
    library = ctypes.CDLL(swiglpk._swiglpk.__file__)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def set_callback(parameters: Any, called: Callable[[int], None]) -> Any:
    """Have the search with these parameters (`glp_iocp`) call `called(tree)`; keep what is returned until its end.

    RuntimeError where this GLPK lays its parameters out in another way.
    """
    callback = _Callback(lambda tree, _: called(tree))
    block = _Iocp.from_address(int(parameters.this))
    marks = (parameters.tm_lim, parameters.out_dly, parameters.cb_size)
    if marks != (block.tm_lim, block.out_dly, block.cb_size):
        raise RuntimeError("this version of GLPK has another layout of its parameters - pip install 'swiglpk>=5,<6'")
    block.cb_func = callback
    return callback
