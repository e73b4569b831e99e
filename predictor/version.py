"""The version of the package, in one place: hatchling reads it too."""

__version__ = "0.1.0"
