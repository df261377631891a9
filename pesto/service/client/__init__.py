"""The placement service from afar: jobs submitted, watched and fetched over HTTP, through any restart of the server."""
