"""The Python interface: `ragmem.open_memory`, `ConversationAgent` and `Conversation`."""
