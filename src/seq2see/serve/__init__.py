"""The HTTP service: admission of requests, batches shared by many users, engines in processes of their own, routes.

The process that answers HTTP never imports torch and never blocks its event loop.
"""
