"""Tables of result sets."""
