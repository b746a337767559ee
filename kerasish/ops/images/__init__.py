"""Ops on images: resizing, warping, filtering, boxes, patches, sampling."""
