"""Baechi's three methods (Jeon et al. 2020): m-TOPO, m-ETF and m-SCT."""
