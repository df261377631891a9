"""Problems and schedules as bytes and as JSON that other programs can read."""
