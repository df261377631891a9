"""Placements that read a network's own scopes and layers, as people place by hand."""
