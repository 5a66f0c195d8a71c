"""A thousand deletion requests: outages, downtime, compute and depth (paper, Section 4.3, "Deletion Time")."""
