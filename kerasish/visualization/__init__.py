"""Pictures with boxes, masks and labels drawn on them, single or in galleries (extra `plot`)."""

from kerasish.visualization.drawing import draw_bounding_boxes as draw_bounding_boxes
from kerasish.visualization.drawing import draw_segmentation_masks as draw_segmentation_masks
from kerasish.visualization.galleries import plot_bounding_box_gallery as plot_bounding_box_gallery
from kerasish.visualization.galleries import plot_image_gallery as plot_image_gallery
from kerasish.visualization.galleries import (
    plot_segmentation_mask_gallery as plot_segmentation_mask_gallery,
)
