"""Coarsening of a scheduling problem: groups first, then acyclic batch merging (Pesto, section 3.3)."""

from pesto.planning.coarsen.coarsening import Caps, Coarsening, Removed, Round, contract, shortest
from pesto.planning.coarsen.merge import coarsen

__all__ = ["Caps", "Coarsening", "Removed", "Round", "coarsen", "contract", "shortest"]
