"""Scores of translations (`metrics`, each with a signature of how it was computed), validation during training
(`validation`), comparisons of runs (`compare`), the confidence of single translations (`confidence`), and reports on
whether a model learned its task (`assessment`, `report`).
"""
