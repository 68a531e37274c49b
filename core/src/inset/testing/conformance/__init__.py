"""Conformance suites: written once, inherited by built-ins and plugins alike."""
