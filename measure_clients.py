"""Measure how non-IID given clients are: the α of the Dirichlet partition from which their counts look drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils.errors import run_script

if TYPE_CHECKING:
    from datasets.table import Table


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table as CSV."""
    import pandas as pd

    from utils.files import write_atomically

    with write_atomically(path) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False)


def main() -> None:
    """Estimate α by each grouping; print a sentence for each, write a table and draw a figure."""
    from stages.own_clients import OwnClientSettings

    args = OwnClientSettings.from_args(__doc__)
    from datasets.table import read_table
    from network.partition.own_clients import measure, own_clients, target_shares
    from reports.console import wrapped
    from reports.figures.own_clients import equivalent_alphas
    from utils.runs import data_path_or_default

    def table_of() -> tuple[Table, Path]:
        """The table of images, and the folder of its clusters."""
        return read_table(data_path_or_default(args.data_path, args.result_path)), args.assignment_files_path

    has_table = args.data_path or args.partition_file is None
    clients = own_clients(args.clients, args.groups, args.partition_file, table_of if has_table else None)
    shares = target_shares(table_of()[0], args.tasks, len(clients.client_of)) if args.tasks else {}
    measured = measure(clients, args.rand_seed)
    print(*(wrapped(grouping.sentence()) for grouping in measured), sep="\n")
    n_clients = int(clients.client_of.max()) + 1
    for task, share in shares.items():
        print(f"{task}: {share(clients.client_of, n_clients):.2f} of the target's variance lies between clients")
    write_rows(args.output_path / "equivalent_alpha.csv", [grouping.row() for grouping in measured])
    equivalent_alphas(measured, args.output_path / "equivalent_alpha.png")
    if args.simulate:
        from network.partition.simulated_clients import simulate

        simulated = [simulate(clients, grouping, args.rand_seed, shares) for grouping in measured]
        for nearest, *_ in simulated:
            print(wrapped(f"{nearest.sentence()}; arguments in {nearest.save(args.output_path)}"))
        write_rows(args.output_path / "simulated.csv", [rule.row() for rules in simulated for rule in rules])
    print(f"tables and figure in {args.output_path}")


if __name__ == "__main__":
    run_script(main)
