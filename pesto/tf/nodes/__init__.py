"""The nodes of a GraphDef: which are needed, their types and shapes, loops and calls as single ops."""
