"""Finds plugins, checks them, sets broken ones aside and says why."""
