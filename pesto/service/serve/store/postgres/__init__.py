"""One PostgreSQL database for several servers: sessions that come back by themselves, and leases of jobs."""
