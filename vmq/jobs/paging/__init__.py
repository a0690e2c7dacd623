"""Jobs beyond those that go next are in memory as columns of numbers only: pages, and how they are found."""
