"""Data: corruption sets, the corruption maker, streams, the embedded set, downloads."""
