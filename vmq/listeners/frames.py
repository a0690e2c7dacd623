"""Where the frames of a WebSocket stream end (RFC 6455, section 5.2), so that so many of them can be taken at once."""

from typing import Final

#: The most that a header has: two bytes, eight of length, four of mask.
LONGEST_HEADER: Final = 14


class FrameCounter:
    """Counts frames in a stream that arrives in chunks of any size; what is in them is another's business."""

    def __init__(self) -> None:
        #: Frames that the last piece completed.
        self.count = 0
        #: Bytes of payload that the last header announced.
        self.size = 0
        self._left = 0
        self._header = b""

    def cut(self, data: bytes, start: int, most: int) -> int:
        """Where the piece of `data` ends that begins at `start` and completes `most` frames, or all that there are."""
        self.count = 0
        position = start
        while position < len(data):
            if not self._left:
                position = self._read_header(data, position)
                if self._header:
                    break  # it is cut
            taken = min(self._left, len(data) - position)
            self._left -= taken
            position += taken
            if not self._left:
                self.count += 1
                if self.count == most:
                    break
        return position

    def _read_header(self, data: bytes, position: int) -> int:
        """Reads a header, or what there is of it; returns where its payload begins."""
        header = self._header + data[position : position + LONGEST_HEADER - len(self._header)]
        needed = 2
        if len(header) > 1:
            short = header[1] & 127
            needed += {126: 2, 127: 8}.get(short, 0) + (4 if header[1] & 128 else 0)
            if len(header) >= needed:
                position += needed - len(self._header)
                self._header = b""
                self.size = short
                if short > 125:
                    self.size = int.from_bytes(header[2 : 4 if short == 126 else 10], "big")
                self._left = self.size
                return position
        self._header = header
        return len(data)
