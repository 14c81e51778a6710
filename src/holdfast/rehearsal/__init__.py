"""Rehearse the drift before deployment: which method, which settings, and is it worth it?"""
