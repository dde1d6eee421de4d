"""What makes a CPU fast. Each kernel has its plain form beside it, and a test compares the two."""
