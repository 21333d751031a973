"""The comparison of issfa with other packages on real data."""
