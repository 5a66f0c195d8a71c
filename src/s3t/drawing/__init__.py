"""Pictures of orders and of simulated systems, by matplotlib, which is loaded when something is drawn."""

from s3t.drawing.depths import DepthPicture, draw_depths
from s3t.drawing.figure import SUFFIXES, check_picture
from s3t.drawing.orders import draw_orders

__all__ = ["SUFFIXES", "DepthPicture", "check_picture", "draw_depths", "draw_orders"]
