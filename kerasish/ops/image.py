"""Functions on pictures: Keras's `ops.image` namespace."""

from kerasish.ops.filtering import crop_images as crop_images
from kerasish.ops.filtering import extract_patches as extract_patches
from kerasish.ops.filtering import extract_patches_3d as extract_patches_3d
from kerasish.ops.filtering import gaussian_blur as gaussian_blur
from kerasish.ops.filtering import hsv_to_rgb as hsv_to_rgb
from kerasish.ops.filtering import pad_images as pad_images
from kerasish.ops.filtering import rgb_to_grayscale as rgb_to_grayscale
from kerasish.ops.filtering import rgb_to_hsv as rgb_to_hsv
from kerasish.ops.filtering import sobel_edges as sobel_edges
from kerasish.ops.filtering import ssim as ssim
from kerasish.ops.resizing import resize as resize
from kerasish.ops.resizing import scale_and_translate as scale_and_translate
from kerasish.ops.warping import affine_transform as affine_transform
from kerasish.ops.warping import elastic_transform as elastic_transform
from kerasish.ops.warping import map_coordinates as map_coordinates
from kerasish.ops.warping import perspective_transform as perspective_transform
