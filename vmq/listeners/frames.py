"""Frames of a WebSocket stream (RFC 6455, section 5.2): where they end, and those of which nearly all traffic is.

These are one whole message each. To read or make one here takes a fraction of what the library takes for it.
"""

from typing import Final

try:
    from websockets.speedups import apply_mask
except ImportError:  # where it is not compiled
    from websockets.utils import apply_mask

#: How a frame begins that is a whole binary message.
MESSAGE: Final = 0x82

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

    def is_between(self) -> bool:
        """Whether the stream is between two frames."""
        return not self._left and not self._header

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


def take_messages(data: bytes, start: int, most: int, largest: int) -> tuple[list[bytes], int]:
    """The whole binary messages with which `data` goes on at `start`, and where they end.

    They are one masked frame each: so many at most, and none of more than `largest` bytes, or of 64 KiB and more.
    """
    messages: list[bytes] = []
    while len(messages) < most and start + 6 <= len(data) and data[start] == MESSAGE:
        size = data[start + 1] - 128
        mask = start + 2
        if size == 126:
            size = int.from_bytes(data[mask : mask + 2], "big")
            mask += 2
        elif not 0 <= size < 126:
            break
        end = mask + 4 + size
        if size > largest or end > len(data):
            break
        messages.append(apply_mask(data[mask + 4 : end], data[mask : mask + 4]))
        start = end
    return messages, start


def message_head(size: int) -> bytes:
    """How a frame begins that carries a whole binary message of so many bytes, from the server."""
    if size < 126:
        return bytes((MESSAGE, size))
    if size < 65_536:
        return bytes((MESSAGE, 126)) + size.to_bytes(2, "big")
    return bytes((MESSAGE, 127)) + size.to_bytes(8, "big")
