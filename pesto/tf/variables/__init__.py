"""Readers and writers of variables, holders of their handles, and the program order between them."""
