"""The command line: parses, calls the App, says what came of it, exits."""
