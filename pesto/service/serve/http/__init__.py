"""The service over HTTP: routes, what they answer, who may ask, and streams of events."""
