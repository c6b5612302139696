"""Figures of result sets."""
