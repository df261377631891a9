"""Matches a traced step to its plan: traces it with an open batch where a plan needs that, else names the one cause."""
