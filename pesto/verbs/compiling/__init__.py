"""What a solve compiles, compiled ahead: in processes of their own, while a machine's first solve begins."""
