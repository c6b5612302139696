"""Copies, pages and reports for others."""
