"""Run the command lines of standard input, several at once, with one progress bar; the first failure ends it."""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm


def main() -> int:
    """Each command's output goes into a numbered file; that of a failed one is shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log_path", type=Path, required=True, help="folder of the commands' outputs")
    parser.add_argument("--jobs", type=int, default=1, help="how many commands run at once")
    parser.add_argument("--title", default="jobs", help="what they are, for the bar and the files")
    args = parser.parse_args()
    commands = [line.strip() for line in sys.stdin if line.strip()]
    args.log_path.mkdir(parents=True, exist_ok=True)
    # One thread each where several run: threads that share a core wait for each other at every operation.
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}

    def run(number: int) -> int:
        with log(number).open("w", encoding="utf-8") as output:
            output.write(f"{commands[number]}\n")
            output.flush()
            return subprocess.run(
                commands[number], shell=True, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
            ).returncode

    def log(number: int) -> Path:
        return args.log_path / f"{args.title.replace(' ', '_')}_{number + 1:03}.log"

    with ThreadPoolExecutor(args.jobs) as pool:
        futures = {pool.submit(run, number): number for number in range(len(commands))}
        for future in tqdm(as_completed(futures), total=len(commands), desc=args.title, unit="run"):
            if code := future.result():
                pool.shutdown(wait=False, cancel_futures=True)
                path = log(futures[future])
                print(f"{path.read_text(encoding='utf-8')}\nfailed with exit code {code}, see {path}", file=sys.stderr)
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
