"""Images on disk as tables, targets and batches."""

from typing import Any

# What other packages take from Hugging Face's `datasets`, which this folder hides from programs that start beside it.
_HUGGING_FACE = frozenset(
    {
        "Audio",
        "ClassLabel",
        "Dataset",
        "DatasetDict",
        "Features",
        "Image",
        "IterableDataset",
        "IterableDatasetDict",
        "Sequence",
        "Value",
        "concatenate_datasets",
        "get_dataset_config_names",
        "interleave_datasets",
        "load_dataset",
        "load_dataset_builder",
        "load_from_disk",
    }
)


def __getattr__(name: str) -> Any:
    """Raise ImportError, which says what to do, for what only Hugging Face's package has; AttributeError for others."""
    if name in _HUGGING_FACE:
        raise ImportError(
            f"{name} is of Hugging Face's package datasets, which the folder {__path__[0]} hides: start the program in "
            "another folder, or with python -P, which leaves the program's folder out of the path"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
