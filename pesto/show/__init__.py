"""Every page and picture of a result, for people: tables, the live line, charts."""
