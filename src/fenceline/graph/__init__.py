"""Typed graph tables: many tables and files in one commit."""
