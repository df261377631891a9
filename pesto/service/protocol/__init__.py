"""What the service and its clients send each other: states of jobs and the bodies of answers."""
