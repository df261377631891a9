"""From devices and an order to start times: the compiled event loop with its links, and times rebuilt."""
