"""The parts of `template.py`: reading, looking up, tags, filters and limits of Liquid."""
