"""The store of the service: jobs and their events in one database that one thread writes, many acts a commit."""
