"""Audit: is everything that may serve what today's slices ask for, and does training it again give its bytes?"""
