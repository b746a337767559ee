"""The strict memory mode of the tests: poisoned memory, guard pages, checked plans."""
