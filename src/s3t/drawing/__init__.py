"""Pictures, by matplotlib, which is loaded when something is drawn."""

from s3t.drawing.figure import check_picture, draw_confusion, draw_depths, draw_orders

__all__ = ["check_picture", "draw_confusion", "draw_depths", "draw_orders"]
