"""How good the translations of a run are (`metrics`, with signatures that say what was computed), whether those of
another run are better (`compare`), and whether a training taught the model anything (`assessment`, `report`)."""
