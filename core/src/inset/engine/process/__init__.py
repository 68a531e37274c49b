"""Front ends and the engine core in processes of their own: launching, meeting, talking, and noticing each other's end."""
