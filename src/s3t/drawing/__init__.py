"""Pictures of orders, systems and confusions, by matplotlib, which is loaded when something is drawn."""

from s3t.drawing.confusion import draw_confusion
from s3t.drawing.depths import draw_depths
from s3t.drawing.figure import check_picture
from s3t.drawing.orders import draw_orders

__all__ = ["check_picture", "draw_confusion", "draw_depths", "draw_orders"]
