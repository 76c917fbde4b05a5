"""What the readers of images and arrays raise for broken files, found by flipping bits."""

import struct
import tokenize
import zipfile
import zlib

from PIL import Image

FAULTS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    RuntimeError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    Image.DecompressionBombError,
)
