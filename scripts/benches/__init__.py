"""Benchmarks of ragmem: latency, cost and recall, measured against their targets.

results.py     a measurement against its target, and how it is shown
spread.py      statistics of many runs         tables.py   aligned rows of text
places.py      folders, environments and stores to measure in
starts.py      starts of the program
recording.py   steps of recording
asking.py      a one-shot question on a large memory
draining.py    storing and embedding turns
filling.py     a generated memory of any size, with plausible sessions
content.py     the same with vectors, and questions about it
growth.py      the cost of everything at 1,000, 100,000 and 1,000,000 turns
search.py      searches in memories of any size
context.py     contexts in memories of any size, and over a long conversation
memories.py    labelled sessions in a store, and the program's recall over it
recalling.py   the share of the labelled evidence that is found
next_day.py    what the model sees when a user is back on another day
remembering.py the latency of a turn among thousands of memories
peer.py        comparison with neo4j-agent-memory, whose process is peer_client.py
code.py        the code index: what it costs, how fast and how much it finds
code_*.py      code bases, questions about them, baselines; indexing and updating; searches by the
               number of scopes
graph.py       the page of `ragmem graph`      typing.py   the echo of keys in a chat
sandboxed.py   a command in the sandbox
charts.py      charts as SVG     plots.py, pictures.py   the charts of results
"""
