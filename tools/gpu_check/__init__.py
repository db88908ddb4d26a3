"""The parts of tools/gpu-check. Nothing but Python's own library: it runs where there is no more."""
