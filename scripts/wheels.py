"""Make a folder of the wheels that a machine without a network lacks for the requirements.

    python3.12 -m scripts.wheels                       for one with torch 2.11, torchvision 0.26 and NumPy 2.5, on Linux
    python3.12 -m scripts.wheels --has torch==2.11.0 torchvision numpy==2.5.2 scipy …

The wheels are for the Python and the kind of system that run this script, which must be the machine's. What does not
fit into the folder is left out and named on standard error, and the exit code is 1. `scripts/with_wheels.sh` unpacks
the folder there.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from utils.args import POSITIVE, Parser
from utils.errors import UserError, run_script

HAS = ["torch==2.11.*", "torchvision==0.26.*", "numpy==2.5.*"]
# What every measurement of `python -m benchmarks.gpu` imports; the rest is for some of them.
FIRST = ("accelerate", "safetensors", "PyYAML", "tqdm", "pandas", "tabulate", "timm", "open_clip_torch")
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
_WHEELS = ("--only-binary", ":all:")


def named(requirement: str) -> str:
    """The package of a requirement, as package indexes compare names."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", name[0] if name else "").lower()


def pip(*words: str) -> None:
    """Run pip; UserError with its last line of error."""
    done = subprocess.run([*_PIP, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise UserError(f"pip: {errors[-1].removeprefix('ERROR: ') if errors else done.returncode}")


def resolved(requirements: Sequence[str], folder: Path) -> dict[str, dict]:
    """What pip would install for these requirements in an empty environment: each package's metadata by its name."""
    report = folder / "report.json"
    pip("install", "--dry-run", "--ignore-installed", "--report", str(report), *_WHEELS, *requirements)
    installed = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {named(package["metadata"]["name"]): package["metadata"] for package in installed}


def closure(names: Iterable[str], packages: Mapping[str, dict]) -> list[str]:
    """These of the packages, with those that they need, each behind what needs it."""
    seen: list[tuple[str, str]] = []  # a package, and an extra of it that is asked for, if any
    waiting = [(name, "") for name in names]
    while waiting:
        name, extra = waiting.pop(0)
        if (name, extra) in seen or name not in packages:
            continue
        seen.append((name, extra))
        for requirement in packages[name].get("requires_dist", []):
            if (re.findall(r"extra == ['\"](.+?)['\"]", requirement) or [""])[0] == extra:
                extras = re.findall(r"^[\w.-]+ *\[(.*?)\]", requirement)
                waiting += [(named(requirement), word.strip()) for word in ("", *",".join(extras).split(","))]
    return list(dict.fromkeys(name for name, _ in seen))


def fitting(roots: Sequence[str], needs: Mapping[str, Sequence[str]], sizes: Mapping[str, int], most: int) -> list[str]:
    """The packages, of those with a size, that fit into so many bytes: each root with all that it needs, or not at all.

    `needs` are those of a root, itself among them; roots that come earlier go first.
    """
    taken: list[str] = []
    for root in roots:
        new = [name for name in needs[root] if name in sizes and name not in taken]
        if sum(sizes[name] for name in (*taken, *new)) <= most:
            taken += new
    return taken


def roots_of(files: Sequence[Path]) -> list[str]:
    """The requirements in some files, what every measurement needs first."""
    lines = [line.partition("#")[0].strip() for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    first = [named(name) for name in FIRST]
    return sorted(
        filter(None, lines), key=lambda line: first.index(named(line)) if named(line) in first else len(first)
    )


def make(
    has: Sequence[str], requirements: Sequence[Path], further: Sequence[str], megabytes: float, output_path: Path
) -> list[str]:
    """Make the folder; what is left out, with its size."""
    if output_path.exists() and any(output_path.iterdir()):
        raise UserError(f"{output_path} is not empty; remove it, or give another --output_path")
    wanted = [*roots_of(requirements), *further]
    with tempfile.TemporaryDirectory() as folder:
        packages = resolved([*has, *wanted], Path(folder))
        present = closure(map(named, has), packages)
        missing = {name: package for name, package in packages.items() if name not in present}
        downloads = Path(folder, "wheels")
        pip(
            "download",
            "--no-deps",
            *_WHEELS,
            "--dest",
            str(downloads),
            *(f"{name}=={package['version']}" for name, package in missing.items()),
        )
        wheels = {named(path.name.partition("-")[0]): path for path in downloads.glob("*.whl")}
        sizes = {name: wheels[name].stat().st_size for name in missing}
        roots = [name for name in map(named, wanted) if name in packages]
        needs = {root: closure([root], packages) for root in roots}
        taken = fitting(roots, needs, sizes, int(megabytes * 1e6))
        output_path.mkdir(parents=True, exist_ok=True)
        for name in taken:
            (output_path / wheels[name].name).write_bytes(wheels[name].read_bytes())
    total = sum(sizes[name] for name in taken) / 1e6
    print(f"{len(taken)} wheels, {total:.1f} MB, in {output_path}; the machine has {len(present)} packages")
    return [f"{name} {packages[name]['version']} ({sizes[name] / 1e6:.1f} MB)" for name in sizes if name not in taken]


def main() -> None:
    """Make the folder, and say what is not in it."""
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--has", nargs="+", default=HAS, metavar="PACKAGE", help="what the machine has, with what that needs")
    add("--requirements", nargs="+", type=Path, default=[Path("requirements.txt")], help="files of what it shall have")
    add(
        "--further",
        nargs="+",
        default=[],
        metavar="PACKAGE",
        help="packages beside those of the files, e.g. pfl==0.6.0",
    )
    add("--megabytes", type=POSITIVE, default=60.0, help="that the folder may take")
    add("--output_path", type=Path, default=Path("wheels"), help="the folder")
    if left_out := make(**vars(parser.parse_args())):
        print(f"left out, for {', '.join(left_out)} would not fit", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run_script(main)
