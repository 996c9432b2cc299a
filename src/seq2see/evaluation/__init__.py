"""The evaluation room: how good the translations of a run are (`metrics`, each score with a signature saying exactly
what was computed), whether those of another are any better (`compare`), and the one page that tells the story of a
training (`report`)."""
