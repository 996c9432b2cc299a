"""The page that explains one translation step by step.

Scripts on the page request parts of one JSON object by name. The parts are in the page itself, or come from a server
(live page), so that both kinds of page use the same scripts.
"""
