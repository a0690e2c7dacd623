"""The live page at `/`: what it is made of, who may open it, and the figures that it shows."""
