"""Splits: page of one op, tables of variables, and a picture of the parts."""
