"""Addresses of the named data sets, and their checksums."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from kerasish.datasets.download import get_file

Pair = tuple[np.ndarray, np.ndarray]

_KERAS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets"
_TORONTO = "https://www.cs.toronto.edu/~kriz"


class Source(NamedTuple):
    """One file: its name at the server, its SHA-256 (or MD5, of 32 digits), its URL's folder."""

    file: str
    file_hash: str
    base: str = _KERAS


SOURCES = {
    "mnist": Source(
        "mnist.npz", "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
    ),
    "boston_housing": Source(
        "boston_housing.npz", "f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5"
    ),
    "california_housing": Source(
        "california_housing.npz", "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f"
    ),
    "imdb": Source("imdb.npz", "69664113be75683a8fe16e3ed0ab59fda8886cb3cd7ada244f7d9544e4676b9f"),
    "imdb_words": Source("imdb_word_index.json", "bfafd718b763782e994055a2d397834f"),
    "reuters": Source(
        "reuters.npz", "d6586e694ee56d7a4e65172e12b3e987c03096cb01eab99753921ef915959916"
    ),
    "reuters_words": Source("reuters_word_index.json", "4d44cc38712099c9e383dc6e5f11a921"),
    "cifar10": Source(
        "cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        _TORONTO,
    ),
    "cifar100": Source(
        "cifar-100-python.tar.gz",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        _TORONTO,
    ),
    "fashion_train_images": Source(
        "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"
    ),
    "fashion_train_labels": Source(
        "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"
    ),
    "fashion_test_images": Source("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
    "fashion_test_labels": Source("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
}


def fetch(
    name: str, fname: str | None = None, subdir: str = "datasets", extract: bool = False
) -> str:
    """Return the path of a file of SOURCES in the cache, downloaded and checked if need be.

    The environment variable KERASISH_DATASETS_URL names a folder (a mirror, or file://...) that is
    used in place of the usual servers, with the same checksums.

    Args:
        name: key in SOURCES.
        fname: name in the cache; default the name at the server.
        subdir: folder in the cache.
        extract: unpack it and return the folder.
    """
    source = SOURCES[name]
    base = os.environ.get("KERASISH_DATASETS_URL") or source.base
    return get_file(
        fname or source.file,
        origin=f"{base.rstrip('/')}/{source.file}",
        file_hash=source.file_hash,
        cache_subdir=subdir,
        extract=extract,
    )
