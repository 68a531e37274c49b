"""Scheduling: pure bookkeeping of requests, blocks and encoder outputs."""
