"""Stage 4 by its published name: `train_federated.py`, with the same command line."""

from train_federated import main
from utils.errors import run_script

__all__ = ["main"]

if __name__ == "__main__":
    run_script(main, smaller="--batch_size or --vectorised_clients")
