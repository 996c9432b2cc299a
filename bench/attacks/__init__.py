"""Attacks on a running service, each measured by what becomes of a polite client beside it."""
