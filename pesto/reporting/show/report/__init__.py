"""A plan as one HTML page that opens anywhere: its values packed as columns, and the script that draws them."""
