"""Damage on a disk: files of which bits are flipped."""

from pathlib import Path


def flip(path: Path, at: int, bits: int = 1) -> None:
    """Flips these bits of the byte at a place of a file, which counts from its end if it is below 0."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= bits
    path.write_bytes(raw)
