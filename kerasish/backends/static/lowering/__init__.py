"""From graph nodes to units: what runs natively, and by which kernel."""
