"""The page that explains one translation step by step.

Its components request parts of one JSON object by name; the parts are in the page itself or come from a server, so that
both use the same front end.
"""
