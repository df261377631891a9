"""From a captured training step to what each op is to one who divides it: shapes, attributes and small constants."""
