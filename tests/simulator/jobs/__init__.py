"""Jobs over nodes that die, lose their disks and are cut off, in one process and from one seed."""
