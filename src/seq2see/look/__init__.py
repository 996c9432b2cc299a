"""The look room: the page that walks a sentence through a model. Its components ask for parts of one JSON by name,
whether they lie in the page itself or a server has them: one front end, not two."""
