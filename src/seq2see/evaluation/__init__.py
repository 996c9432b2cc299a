"""Scores of translations (`metrics`, each with a signature of how it was computed), comparisons of runs (`compare`),
and reports on whether a model learned its task (`assessment`, `report`).
"""
