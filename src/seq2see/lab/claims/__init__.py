"""One module for each claim: `trials`, `measure` and `VALUES`; `claims.toml` has the texts, bounds and charts."""
