"""Any allocation of a chain, contiguous or not, on devices equal or not: searched within their memory."""
