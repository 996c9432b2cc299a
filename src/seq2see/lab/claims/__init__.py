"""One module for each claim: `trials`, `measure`, `VALUES`, `CONTROLS`; `claims.toml` has texts, bounds and charts."""
