"""The page that walks through one translation. Its components ask for parts of one JSON object by name, whether these
lie in the page itself or a server has them, so that both have the same front end."""
