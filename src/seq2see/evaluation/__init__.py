"""Scores of translations (`metrics`, with signatures that say what was computed), comparisons of runs (`compare`), and
reports on whether a model learned its task (`assessment`, `report`)."""
