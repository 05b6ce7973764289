"""How long a person waits: each promise of ragmem about time, measured.

results.py     a measurement, and how it is shown
places.py      folders, environments and stores to measure in
starts.py      starts of the program
recording.py   steps of recording
filling.py     a memory of any size, made of plausible sessions
growth.py      what everything costs at 1,000, 100,000 and 1,000,000 turns
plots.py       how cost grows, drawn as SVG
"""
