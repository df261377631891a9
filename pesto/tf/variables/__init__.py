"""Who reads and writes which variable, who holds its handle, and the order that this asks for."""
