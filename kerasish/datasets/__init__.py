"""Data sets: small ones that are always here, and Keras's named ones, downloaded on first use."""

from kerasish.datasets import boston_housing as boston_housing
from kerasish.datasets import breast_cancer as breast_cancer
from kerasish.datasets import california_housing as california_housing
from kerasish.datasets import cifar10 as cifar10
from kerasish.datasets import cifar100 as cifar100
from kerasish.datasets import diabetes as diabetes
from kerasish.datasets import digits as digits
from kerasish.datasets import english_text as english_text
from kerasish.datasets import fashion_mnist as fashion_mnist
from kerasish.datasets import imdb as imdb
from kerasish.datasets import iris as iris
from kerasish.datasets import mnist as mnist
from kerasish.datasets import reuters as reuters
from kerasish.datasets import wine as wine
