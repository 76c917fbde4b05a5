"""A Slurm cluster of a test's own: two nodes on this machine, with ports and folders that no other cluster has."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun")
NODES = ("one", "two")
LIMIT = 300.0  # seconds, many times what anything here takes on an idle machine

_CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
KillWait=2
ReturnToService=2
MaxArraySize=3
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName=one NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
NodeName=two NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[3]} CPUs=2
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why there can be no such cluster here; empty where there can."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if lacking := [program for program in PROGRAMS if shutil.which(program, path=path) is None]:
        return f"Slurm is not installed (no {', '.join(lacking)}; Debian: slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "only root can start a Slurm cluster"


def wait_for(what: Callable[[], bool], failed: Callable[[], str] = lambda: "") -> None:
    """Wait until something has come about, for as long as the busiest machine may take."""
    limit = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < limit, failed() or what
        time.sleep(0.1)


def slurm(*command: str) -> str:
    """What a program of Slurm prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def start_again(job: str) -> None:
    """Wait until a job that was put back into the queue has begun again: Slurm holds it back for two minutes."""

    def begun() -> bool:
        said = slurm("scontrol", "show", "job", job)
        if "JobState=PENDING" in said:  # while it ends, it cannot be changed
            subprocess.run(["scontrol", "update", f"jobid={job}", "StartTime=now"], capture_output=True, check=False)
        return "Restarts=0" not in said and "JobState=RUNNING" in said

    wait_for(begun)


@contextmanager
def cluster() -> Iterator[Path]:
    """The configuration of a running cluster, which SLURM_CONF must name; it is gone when the block ends.

    RuntimeError, with what its programs have said, where it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # short: paths of sockets have at most 107 characters
    folder.chmod(0o755)
    (folder / "state").mkdir()
    configuration = folder / "slurm.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, ports=free_ports(4)))
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = ["munged", "--foreground", "--force", *(f"--{name}={folder}/munge.{end}" for name, end in files.items())]
    daemons: list[subprocess.Popen] = []
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    try:
        with (folder / "daemons.txt").open("w") as output:
            for command in (munge, ["slurmctld", "-D", "-c"], *(["slurmd", "-D", "-N", name] for name in NODES)):
                daemons.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
                if command is munge:
                    _until((folder / "munge.sock").exists, daemons, folder)
        _until(lambda: _idle(environment) == len(NODES), daemons, folder)
        yield configuration
    finally:
        _take_down(daemons, environment)
        shutil.rmtree(folder, ignore_errors=True)


def _idle(environment: dict[str, str]) -> int:
    command = ["sinfo", "--noheader", "--Node", "--format=%T"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.count("idle")


def _until(what: Callable[[], bool], daemons: Sequence[subprocess.Popen], folder: Path) -> None:
    limit = time.monotonic() + LIMIT
    while not what():
        if time.monotonic() > limit or any(each.poll() is not None for each in daemons):
            said = [f"{path.name}: {path.read_text()[-500:]}" for path in folder.glob("*.[lt][ox][gt]")]
            raise RuntimeError(" | ".join(said))
        time.sleep(0.1)


def _take_down(daemons: Sequence[subprocess.Popen], environment: dict[str, str]) -> None:
    """End all jobs, then the daemons, the last first."""
    if len(daemons) > 1 and all(each.poll() is None for each in daemons):
        subprocess.run(["scancel", "--user", "root"], env=environment, capture_output=True, check=False)
        limit = time.monotonic() + LIMIT
        while time.monotonic() < limit:
            left = subprocess.run(["squeue", "--noheader"], env=environment, capture_output=True, check=False)
            if not left.stdout.strip():
                break
            time.sleep(0.1)
    for daemon in reversed(daemons):
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def free_ports(number: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
