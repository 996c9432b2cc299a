"""Side-by-side benchmarks: `python -m bench` runs us and our peers in one go, each in a process of its own."""
