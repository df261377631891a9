"""Op types that are never divided, on purpose."""

SOURCE = "a source: it has no input to divide"
FED = frozenset(("Placeholder", "PlaceholderV2", "PlaceholderWithDefault"))
"""Op types whose values the host feeds, to every worker that reads them."""
SHAPES = "a few whole numbers, made of shapes"
ALIKE = "all workers draw the same numbers, from one key"
ONCE = "it must run once: its parts would draw other numbers, or have effects twice"

ROWS = (
    dict.fromkeys(("Const", "VarHandleOp", "Placeholder", "PlaceholderWithDefault", "NoOp", "VariableV2"), SOURCE)
    | dict.fromkeys(
        (
            "BroadcastGradientArgs", "ConcatOffset", "InvertPermutation", "LinSpace", "Range", "Rank", "Shape",
            "ShapeN", "Size",
        ),
        SHAPES,
    )
    | dict.fromkeys(("StatelessRandomGetKeyCounter", "StatelessRandomUniformV2", "StatelessRandomNormalV2"), ALIKE)
    | {"DynamicStitch": "rows go where numbers say"}
    | dict.fromkeys(
        (
            "Assert", "Case", "If", "Multinomial", "ParameterizedTruncatedNormal", "Print", "PrintV2", "RandomGamma",
            "RandomShuffle", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "StatelessIf",
            "StatelessWhile", "TruncatedNormal", "While",
        ),
        ONCE,
    )
)  # fmt: skip
"""Op type -> why."""
