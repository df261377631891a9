"""What each op type computes, in the language of descriptions: one row or one description a type, by classes."""
