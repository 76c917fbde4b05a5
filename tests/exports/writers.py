"""Writes the photographs of `truth.py` by each tool: python tests/exports/writers.py FOLDER, in the tools' environment.

Each function writes one folder, called like it, and knows nothing of the sources that read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from truth import CLASSES, HEIGHT, PHOTOGRAPHS, WIDTH, Photograph


def datumaro_boxes(folder: Path, form: str) -> None:
    """Rectangles of datumaro in one of its formats."""
    from datumaro.components.annotation import Bbox

    _datumaro(
        folder,
        form,
        lambda photograph: [
            Bbox(each.left, each.top, each.right - each.left, each.bottom - each.top, label=each.label)
            for each in photograph.things
        ],
        CLASSES,
    )


def datumaro_polygons(folder: Path, form: str) -> None:
    """Polygons of datumaro."""
    from datumaro.components.annotation import Polygon

    _datumaro(
        folder,
        form,
        lambda photograph: [
            Polygon([number for point in each.polygon for number in point], label=each.label)
            for each in photograph.things
        ],
        CLASSES,
    )


def datumaro_masks(folder: Path, form: str, has_colours: bool = True) -> None:
    """Masks of datumaro, with a background, and with colours as CVAT gives them."""
    from datumaro.components.annotation import Mask

    def masks(photograph: Photograph) -> list[Mask]:
        """The background, where there is some, and the things."""
        background = photograph.mask() == 0
        return [
            *([Mask(background, label=0, id=1, group=1)] if background.any() else []),
            *(
                Mask(photograph.mask(each), label=each.label + 1, id=number, group=number)
                for number, each in enumerate(photograph.things, start=2)
            ),
        ]

    names = ("background", *CLASSES)
    _datumaro(
        folder, form, masks, names, ((0, 0, 0), (250, 50, 83), (51, 221, 255), (250, 50, 84)) if has_colours else ()
    )
    (folder / "things.txt").write_text("\n".join(CLASSES))


def _datumaro(
    folder: Path,
    form: str,
    annotations: Callable[[Photograph], list],
    labels: tuple[str, ...],
    colours: tuple[tuple[int, int, int], ...] = (),
) -> None:
    import datumaro
    from datumaro.components.annotation import LabelCategories, MaskCategories
    from datumaro.components.media import Image as Media

    items = [
        datumaro.DatasetItem(
            each.name, subset=each.part, media=Media.from_numpy(each.pixels, ext=".png"), annotations=annotations(each)
        )
        for each in PHOTOGRAPHS
    ]
    categories = {datumaro.AnnotationType.label: LabelCategories.from_iterable(labels)}
    if colours:
        categories[datumaro.AnnotationType.mask] = MaskCategories(dict(enumerate(colours)))
    dataset = datumaro.Dataset.from_iterable(items, categories=categories, media_type=Media)
    dataset.export(str(folder), form, save_media=True)


def supervision_boxes(folder: Path, form: str) -> None:
    """Roboflow's supervision."""
    import supervision

    paths = [str(each.save(folder / "photographs")) for each in PHOTOGRAPHS]
    found = {
        path: supervision.Detections(
            np.array([each[1:] for each in photograph.things], float),
            class_id=np.array([each.label for each in photograph.things]),
        )
        for path, photograph in zip(paths, PHOTOGRAPHS, strict=True)
    }
    dataset = supervision.DetectionDataset(list(CLASSES), paths, found)
    if form == "coco":
        dataset.as_coco(str(folder / "images"), str(folder / "annotations.json"))
    elif form == "yolo":
        dataset.as_yolo(str(folder / "images"), str(folder / "labels"), str(folder / "data.yaml"))
    else:
        dataset.as_pascal_voc(str(folder / "JPEGImages"), str(folder / "Annotations"))


def labelme_polygons(folder: Path) -> None:
    """labelme's files, which labelme2coco makes a COCO file of."""
    from labelme._label_file import LabelFile
    from labelme2coco import convert

    for photograph in PHOTOGRAPHS:
        path = photograph.save(folder / "photos")
        shapes = [
            {
                "label": CLASSES[each.label],
                "points": [list(map(float, point)) for point in each.polygon],
                "shape_type": "polygon",
                "flags": {},
                "description": "",
                "group_id": None,
                "mask": None,
                "other_data": {},
            }
            for each in photograph.things
        ]
        LabelFile().save(str(path.with_suffix(".json")), shapes, path.name, HEIGHT, WIDTH)
    convert(str(folder / "photos"), str(folder))


def labelformat_boxes(folder: Path, form: str) -> None:
    """Lightly's labelformat."""
    from labelformat import formats
    from labelformat.model.bounding_box import BoundingBox
    from labelformat.model.category import Category
    from labelformat.model.image import Image as Record
    from labelformat.model.object_detection import ImageObjectDetection, ObjectDetectionInput, SingleObjectDetection

    categories = [Category(number, name) for number, name in enumerate(CLASSES)]
    records = [Record(number, f"{each.name}.png", WIDTH, HEIGHT) for number, each in enumerate(PHOTOGRAPHS)]

    class Truth(ObjectDetectionInput):
        """What is to be written."""

        @staticmethod
        def add_cli_arguments(parser: object) -> None:
            """None."""

        def get_categories(self) -> list[Category]:
            return categories

        def get_images(self) -> list[Record]:
            return records

        def get_labels(self) -> list[ImageObjectDetection]:
            return [
                ImageObjectDetection(
                    record,
                    [
                        SingleObjectDetection(categories[each.label], BoundingBox(*map(float, each[1:])))
                        for each in photograph.things
                    ],
                )
                for record, photograph in zip(records, PHOTOGRAPHS, strict=True)
            ]

    for each in PHOTOGRAPHS:
        each.save(folder / ("JPEGImages" if form == "voc" else "images"))
    if form == "coco":
        formats.COCOObjectDetectionOutput(folder / "annotations.json").save(Truth())
    elif form == "yolo":
        formats.YOLOv8ObjectDetectionOutput(folder / "data.yaml", "train").save(Truth())
    else:
        formats.PascalVOCObjectDetectionOutput(folder / "Annotations").save(Truth())


def globox_boxes(folder: Path, form: str) -> None:
    """globox."""
    import globox

    found = globox.AnnotationSet(
        globox.Annotation(
            f"{photograph.name}.png",
            (WIDTH, HEIGHT),
            [
                globox.BoundingBox(
                    label=CLASSES[each.label], xmin=each.left, ymin=each.top, xmax=each.right, ymax=each.bottom
                )
                for each in photograph.things
            ],
        )
        for photograph in PHOTOGRAPHS
    )
    ids = {name: number for number, name in enumerate(CLASSES)}
    for each in PHOTOGRAPHS:
        each.save(folder / ("JPEGImages" if form == "voc" else "images"))
    if form == "coco":
        found.save_coco(folder / "annotations.json", label_to_id=ids, auto_ids=True)
    elif form == "yolo":
        found.save_yolo_v5(folder / "labels", label_to_id=ids)
        (folder / "names.txt").write_text("\n".join(CLASSES))
    else:
        found.save_pascal_voc(folder / "Annotations")


def kwcoco_objects(folder: Path) -> None:
    """kwcoco, boxes with polygons."""
    import kwcoco

    dataset = kwcoco.CocoDataset()
    for name in CLASSES:
        dataset.add_category(name)
    for photograph in PHOTOGRAPHS:
        photograph.save(folder / "images")
        image = dataset.add_image(f"images/{photograph.name}.png", width=WIDTH, height=HEIGHT)
        for each in photograph.things:
            dataset.add_annotation(
                image,
                dataset.name_to_cat[CLASSES[each.label]]["id"],
                bbox=[each.left, each.top, each.right - each.left, each.bottom - each.top],
                segmentation=[[number for point in each.polygon for number in point]],
            )
    dataset.dump(str(folder / "data.kwcoco.json"))


def label_studio_boxes(folder: Path, form: str) -> None:
    """What Label Studio exports, by its converter: sides are in percent there."""
    from label_studio_converter import Converter

    config = (
        '<View><Image name="image" value="$image"/><RectangleLabels name="label" toName="image">'
        + "".join(f'<Label value="{name}"/>' for name in CLASSES)
        + "</RectangleLabels></View>"
    )
    tasks = [
        {
            "id": number,
            "data": {"image": str(photograph.save(folder / "photographs"))},
            "annotations": [
                {
                    "result": [
                        {
                            "id": f"{number}_{k}",
                            "type": "rectanglelabels",
                            "from_name": "label",
                            "to_name": "image",
                            "original_width": WIDTH,
                            "original_height": HEIGHT,
                            "image_rotation": 0,
                            "value": {
                                "x": 100 * each.left / WIDTH,
                                "y": 100 * each.top / HEIGHT,
                                "rotation": 0,
                                "width": 100 * (each.right - each.left) / WIDTH,
                                "height": 100 * (each.bottom - each.top) / HEIGHT,
                                "rectanglelabels": [CLASSES[each.label]],
                            },
                        }
                        for k, each in enumerate(photograph.things)
                    ]
                }
            ],
        }
        for number, photograph in enumerate(PHOTOGRAPHS)
    ]
    (folder / "tasks.json").write_text(json.dumps(tasks))
    converter = Converter(config, str(folder))
    images = folder / "images"
    if form == "coco":
        converter.convert_to_coco(str(folder / "tasks.json"), str(folder), output_image_dir=str(images), is_dir=False)
    elif form == "yolo":
        converter.convert_to_yolo(str(folder / "tasks.json"), str(folder), output_image_dir=str(images), is_dir=False)
    else:
        converter.convert_to_voc(str(folder / "tasks.json"), str(folder), output_image_dir=str(images), is_dir=False)
    for each in PHOTOGRAPHS:  # what the converter leaves where it is, as Label Studio packs it
        if not list(images.glob(f"*{each.name}.png")):
            each.save(images)


def cityscapes_polygons(folder: Path) -> None:
    """The scripts of Cityscapes: masks of ids and of objects of its polygons, whose corners belong to them."""
    from cityscapesscripts.helpers.labels import name2label
    from cityscapesscripts.preparation.json2instanceImg import json2instanceImg
    from cityscapesscripts.preparation.json2labelImg import json2labelImg

    names = ("person", "car", "truck")
    whole = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
    for photograph in PHOTOGRAPHS:
        place = Path(photograph.part, "ulm")
        target = folder / "gtFine" / place / f"ulm_{photograph.name}_gtFine_polygons.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        objects = [{"label": "road", "polygon": whole}] + [
            {
                "label": names[each.label],
                "polygon": [
                    [each.left, each.top],
                    [each.right - 1, each.top],
                    [each.right - 1, each.bottom - 1],
                    [each.left, each.bottom - 1],
                ],
            }
            for each in photograph.things
        ]
        target.write_text(json.dumps({"imgWidth": WIDTH, "imgHeight": HEIGHT, "objects": objects}))
        stem = str(target).removesuffix("polygons.json")
        json2labelImg(str(target), f"{stem}labelIds.png")
        json2instanceImg(str(target), f"{stem}instanceIds.png")
        photograph.save(folder / "leftImg8bit" / place).rename(
            folder / "leftImg8bit" / place / f"ulm_{photograph.name}_leftImg8bit.png"
        )
    ids = [f"{name2label[name].id}: {shown}\n" for name, shown in zip(names, CLASSES, strict=True)]
    (folder / "things.txt").write_text("".join(ids))
    (folder / "classes.txt").write_text("".join([f"{name2label['road'].id}: road\n", *ids]))


WRITERS: dict[str, Callable[[Path], None]] = {
    "datumaro_coco_boxes": lambda folder: datumaro_boxes(folder, "coco_instances"),
    "datumaro_coco_polygons": lambda folder: datumaro_polygons(folder, "coco_instances"),
    "datumaro_coco_masks": lambda folder: datumaro_masks(folder, "coco_instances"),
    "datumaro_coco_panoptic": lambda folder: datumaro_masks(folder, "coco_panoptic"),
    "datumaro_voc": lambda folder: datumaro_boxes(folder, "voc_detection"),
    "datumaro_voc_masks": lambda folder: datumaro_masks(folder, "voc_segmentation"),
    "datumaro_voc_masks_without_colours": lambda folder: datumaro_masks(folder, "voc_segmentation", False),
    "datumaro_camvid": lambda folder: datumaro_masks(folder, "camvid"),
    "datumaro_darknet": lambda folder: datumaro_boxes(folder, "yolo"),
    "datumaro_ultralytics": lambda folder: datumaro_boxes(folder, "yolo_ultralytics"),
    "supervision_coco": lambda folder: supervision_boxes(folder, "coco"),
    "supervision_yolo": lambda folder: supervision_boxes(folder, "yolo"),
    "supervision_voc": lambda folder: supervision_boxes(folder, "voc"),
    "labelme": labelme_polygons,
    "labelformat_coco": lambda folder: labelformat_boxes(folder, "coco"),
    "labelformat_yolo": lambda folder: labelformat_boxes(folder, "yolo"),
    "labelformat_voc": lambda folder: labelformat_boxes(folder, "voc"),
    "globox_coco": lambda folder: globox_boxes(folder, "coco"),
    "globox_yolo": lambda folder: globox_boxes(folder, "yolo"),
    "globox_voc": lambda folder: globox_boxes(folder, "voc"),
    "kwcoco": kwcoco_objects,
    "label_studio_coco": lambda folder: label_studio_boxes(folder, "coco"),
    "label_studio_yolo": lambda folder: label_studio_boxes(folder, "yolo"),
    "label_studio_voc": lambda folder: label_studio_boxes(folder, "voc"),
    "cityscapes": cityscapes_polygons,
}


def main() -> None:
    """Write all of them; the exit code is 1 where one cannot be written."""
    root, failed = Path(sys.argv[1]), 0
    for name, write in WRITERS.items():
        folder = root / name
        folder.mkdir(parents=True)
        try:
            with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
                write(folder)
        except Exception as error:
            failed = 1
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
