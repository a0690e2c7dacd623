"""What becomes safe on disk and who waits for it, what stays free of a disk, and files of which few are open."""
