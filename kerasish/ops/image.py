"""Functions on pictures: Keras's `ops.image` namespace."""

from kerasish.ops.images.filtering import crop_images as crop_images
from kerasish.ops.images.filtering import extract_patches as extract_patches
from kerasish.ops.images.filtering import extract_patches_3d as extract_patches_3d
from kerasish.ops.images.filtering import gaussian_blur as gaussian_blur
from kerasish.ops.images.filtering import hsv_to_rgb as hsv_to_rgb
from kerasish.ops.images.filtering import pad_images as pad_images
from kerasish.ops.images.filtering import rgb_to_grayscale as rgb_to_grayscale
from kerasish.ops.images.filtering import rgb_to_hsv as rgb_to_hsv
from kerasish.ops.images.filtering import sobel_edges as sobel_edges
from kerasish.ops.images.filtering import ssim as ssim
from kerasish.ops.images.resizing import resize as resize
from kerasish.ops.images.resizing import scale_and_translate as scale_and_translate
from kerasish.ops.images.warping import affine_transform as affine_transform
from kerasish.ops.images.warping import elastic_transform as elastic_transform
from kerasish.ops.images.warping import map_coordinates as map_coordinates
from kerasish.ops.images.warping import perspective_transform as perspective_transform
