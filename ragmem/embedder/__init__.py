"""Texts become vectors: the protocol, the shipped model, and those reached by litellm."""
