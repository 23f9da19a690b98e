"""What the papers print, line by line, for the record: it fails, and the explorer shows how."""
