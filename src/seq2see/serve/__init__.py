"""Owns the HTTP service: what is let in, how requests of many users share batches, the engine in a process of its own,
and the routes. The process that answers HTTP never imports torch and never waits for anything but its event loop.
"""
