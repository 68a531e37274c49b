"""What decoding an image takes is what its header announced, measured in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from inset.testing.decoded_images import load_image
from inset.testing.sample_images import encode_image, make_pixels

MEASURE = """
import os, sys
from PIL import Image
from inset.testing.decoded_images import load_image
from inset.testing.sample_images import encode_image, exif_block

CASES = (
    ("JPEG", "L", {}), ("JPEG", "RGB", {}), ("JPEG", "CMYK", {}),
    ("JPEG", "RGB", {"progressive": True, "subsampling": 0}), ("JPEG", "CMYK", {"progressive": True}),
    ("PNG", "P", {}), ("PNG", "RGBA", {}), ("PNG", "LA", {}), ("PNG", "I;16", {}), ("TIFF", "I", {}), ("TIFF", "F", {}), ("GIF", "P", {}),
    ("WEBP", "RGBA", {"lossless": True}), ("AVIF", "RGBA", {"speed": 10}), ("JPEG2000", "L", {}), ("JPEG2000", "RGBA", {}),
)

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

def measure(image_format, mode, options):
    turned = {"exif": exif_block(6)} if image_format in ("JPEG", "PNG", "WEBP") else {}
    load_image(encode_image(Image.new(mode, (8, 8)), image_format, **options, **turned)).decode()
    ref = load_image(encode_image(Image.new(mode, (1200, 1000)), image_format, **options, **turned))
    if os.fork():  # the child's peak begins where this process is now
        return os.wait()[1] == 0
    before = peak()
    ref.decode()
    taken = peak() - before
    announced = ref.header.peak_bytes
    if not 0.4 * announced < taken < announced + 2 * 1024**2:
        print(image_format, mode, options, "took", taken, "and announced", announced, flush=True)
        os._exit(1)
    os._exit(0)

sys.exit(not all([measure(*case) for case in CASES]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_decoding_takes_no_more_than_is_announced() -> None:
    # Whatever is large goes back to the system at once, so that nothing that was freed before hides what is taken.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
def test_peak_holds_the_pixels_whatever_is_asked_for(image_format: str) -> None:
    header = load_image(encode_image(make_pixels(40, 30), image_format), {"image_mode": "RGBA"}).header
    assert header.peak_bytes > header.decoded_bytes == 40 * 30 * 4
