"""A module without the class that the settings name."""
