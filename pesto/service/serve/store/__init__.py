"""What the service remembers: jobs and their events in one database that one thread writes, many acts a commit."""
