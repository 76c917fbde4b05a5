#!/usr/bin/env bash
# label-studio-converter 0.0.59 (Python 3.11): Pascal VOC's export loses up to two pixels of a box, its COCO export none.
#
# Label Studio stores the sides of a rectangle in percent. The VOC writer turns left, top, width and height into pixels
# by int(), which cuts off what 7 / 30 * 100 / 100 * 30 = 6.999999999999999 has behind the point, and then adds them.
# A box of the rows 12 to 18 of 30 (top 12, bottom 19), drawn exactly along pixels:
#
#     VOC:  ymin 12, ymax 18        COCO: bbox y 12.0, height 7.0 (to 1e-9)
#
# Seen on 2026-11-29. Fails (exit 1) where VOC's sides are those of COCO's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q "label-studio-converter==0.0.59" "setuptools<81" pillow
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

from label_studio_converter import Converter
from PIL import Image

Image.new("RGB", (40, 30)).save("photo.png")
value = {"x": 100 * 15 / 40, "y": 100 * 12 / 30, "width": 100 * 7 / 40, "height": 100 * 7 / 30, "rotation": 0,
         "rectanglelabels": ["cat"]}
result = {"id": "a", "type": "rectanglelabels", "from_name": "label", "to_name": "image", "original_width": 40,
          "original_height": 30, "image_rotation": 0, "value": value}
task = {"id": 1, "data": {"image": str(Path("photo.png").resolve())}, "annotations": [{"result": [result]}]}
Path("tasks.json").write_text(json.dumps([task]))
config = ('<View><Image name="image" value="$image"/><RectangleLabels name="label" toName="image">'
          '<Label value="cat"/></RectangleLabels></View>')
converter = Converter(config, ".")
converter.convert_to_voc("tasks.json", "voc", output_image_dir="voc/images", is_dir=False)
converter.convert_to_coco("tasks.json", "coco", output_image_dir="coco/images", is_dir=False)
box = ElementTree.parse(next(Path("voc").rglob("*.xml"))).getroot().find("object/bndbox")
sides = [int(box.findtext(side)) for side in ("xmin", "ymin", "xmax", "ymax")]
x, y, width, height = json.loads(Path("coco/result.json").read_text())["annotations"][0]["bbox"]
print("VOC: ", sides)
print("COCO:", [round(each, 9) for each in (x, y, x + width, y + height)])
is_as_seen = sides == [15, 12, 22, 18] and [round(each, 9) for each in (x, y, x + width, y + height)] == [15, 12, 22, 19]
sys.exit(0 if is_as_seen else 1)
PYTHON
