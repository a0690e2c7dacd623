"""The message store on LevelDB: its records, how they lie in files, and the tools that look at them and mend them."""
