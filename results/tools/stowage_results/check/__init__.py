"""Whether a result set is whole and right, and whether two agree."""
