"""Why a step takes as long as it does: what each op waited for, what would help, and what sets two plans apart."""
