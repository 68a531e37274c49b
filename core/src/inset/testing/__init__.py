"""The author kit: conformance suites, fixtures and fakes for plugin authors."""
