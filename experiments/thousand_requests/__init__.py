"""A thousand deletion requests: outages, downtime, compute and depth (paper, Section 5.4, "Deletion Time")."""
