"""What a split says of one op and of its variables, and a picture of who has which part."""
