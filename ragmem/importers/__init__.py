"""Sessions of other agents, read from their files into the store.

jsonl.py           objects of which nothing is certain, one a line; what is found in a file
session_parser.py  a session from such records, turn by turn, whichever agent has written them
claude_code.py     records of Claude Code
codex.py           records of Codex
opencode.py        the database of opencode
messages.py        messages of kimi-cli, mistral-vibe and Gemini CLI
finder.py          the files, and titles that stand beside them
importer.py        turns into the store: only those that it does not have
"""
