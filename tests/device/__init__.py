"""Checks that need a real card. Nothing here runs by itself: each is one prepared script for a machine that has one."""
