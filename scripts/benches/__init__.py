"""How long a person waits, and how much is found: each promise of ragmem, measured.

results.py     a measurement against its target, and how it is shown
spread.py      many runs as a few numbers      tables.py   rows of text
places.py      folders, environments and stores to measure in
starts.py      starts of the program
recording.py   steps of recording
asking.py      a one-shot question on a large memory
draining.py    turns and their vectors
filling.py     a memory of any size, made of plausible sessions
content.py     the same with vectors, and questions about it
growth.py      what everything costs at 1,000, 100,000 and 1,000,000 turns
search.py      searches in memories of any size
context.py     contexts in memories of any size, and over a long conversation
memories.py    labelled sessions in a store, and the program's recall over it
recalling.py   how much of the evidence is found
next_day.py    what stands before the model when somebody is back
remembering.py what a turn waits for among thousands of memories
peer.py        recall beside neo4j-agent-memory, whose process is peer_client.py
code.py        the code index: what it costs, how fast and how much it finds
code_*.py      code bases, questions about them, plain ways to find; indexes made and kept; searches
               by the number of scopes
graph.py       the page of `ragmem graph`    typing.py      keys in a chat, until they are seen
sandboxed.py   a command in the sandbox
charts.py      SVG by hand     plots.py, pictures.py   what is drawn
"""
