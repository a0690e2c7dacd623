"""Commands that look into a broker's folder: the store and the streams."""
