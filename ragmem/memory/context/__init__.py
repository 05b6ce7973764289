"""What a request is made of: collected, written in sections, and built into messages."""
