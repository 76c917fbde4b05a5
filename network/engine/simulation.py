"""The rounds of a federation, simulated in one process or several."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from models.networks.costs import model_costs, peak_memory
from models.networks.kept_outputs import full_model
from models.networks.parts import TRAINABLE
from network.aggregation.mean import Mean
from network.aggregation.weighted_sum import Surroundings, Uploads, total
from network.algorithms.without_server import WithoutServer
from network.attacks.attackers import AttackedUploads, with_false_targets
from network.engine.backend import Backend, ClientTrainer, States
from network.engine.client import ClientRound, copy_into, longest_first
from network.engine.evaluation import Evaluation, participation_gaps
from network.engine.federated_data import FederatedData
from network.engine.server import ServerContext
from network.engine.state import ClientStates, VersionLog, add_prefix, strip_prefix
from network.engine.trainer import LOSS, Trainer, travelling
from network.engine.vectorisation import print_vectorisation
from network.privacy import privacy_of
from utils import interrupt, progress
from utils.errors import UserError
from utils.files import write_json
from utils.processes import from_main
from utils.renamed import with_present_names
from utils.runs import Run, is_due, load_newest, save_checkpoint, state_before
from utils.streams import generator
from utils.words import counted

if TYPE_CHECKING:
    from network.config import FederationConfig

# Columns of a round's row.
STEPS = "local_steps"  # of the client that takes the most: a round's duration where all train at once
TRAFFIC = ("bytes_up", "bytes_down")  # per client
_DIVERGED = 1e6  # times the loss before the first round: a model that has diverged, though its loss is still a number


class ClientsHere(NamedTuple):
    """The `Backend` of clients in this process."""

    states: ClientStates
    trainer: Trainer
    evaluation: Evaluation


class Simulation:
    """Clients train one by one, or several at once, on working copies, and the server averages what they send.

    Each process trains its own clients and keeps a running sum of their uploads. One all-reduce per round adds up these
    sums in double precision, so that the mean does not depend on the order of clients.
    Every random choice has a stream of its own, by seed, round and client (see `utils/streams.py`).

    Tensors outside `local_settings.train` are frozen: they are the same everywhere and never travel. Of other tensors
    that do not travel, each client keeps its own version. Where there are such tensors, the server has no whole model,
    and clients are evaluated with their personal models; where a method makes personal models besides the server's,
    both are evaluated.

    Args:
        model: the initial model; it becomes the working copy.
        data: the images, and which client has which.
        config: what the rounds follow from.
        accelerator: the processes and their device.
        run: where metrics and checkpoints go (written by the main process; clients' states by each process).
        backend: makes what trains and evaluates clients elsewhere; by default they are `here`.

    Raises:
        UserError: where the configuration does not fit the task or the number of clients.
    """

    def __init__(
        self,
        model: nn.Module,
        data: FederatedData,
        config: FederationConfig,
        accelerator: Accelerator,
        run: Run,
        backend: Callable[[Simulation], Backend] | None = None,
    ) -> None:
        config.check(data.images.task, len(data.clients))
        self.model = model.to(accelerator.device).to(memory_format=torch.channels_last)
        self.data, self.config, self.accelerator, self.run = data, config, accelerator, run
        self.algorithm, self.attack, settings = config.algorithm, config.attack, config.settings
        self.privacy = privacy_of(config, len(data.clients))
        self.n_rounds = self.privacy.affordable(config.local.n_rounds)
        self._working = self.model.state_dict()
        self.server = {name: tensor.clone() for name, tensor in full_model(self.model).state_dict().items()}
        self.algorithm.prepare(data.known, data.groups, data.clients)
        config.reweighting.prepare(data.known, data.clients)
        self.server |= self.algorithm.server_state(self.model)
        self._trained, self.shared = travelling(self.model, config)
        config.check_uploads(bool(self.shared))
        self.has_global = len(self.shared) == len(self._trained)
        self.has_personal = self.algorithm.personal or not self.has_global
        self.rows: list[dict[str, Any]] = []
        self._n_saved = 0  # of these rows
        of_process = longest_first(data.clients.sizes, accelerator.num_processes)[accelerator.process_index]
        checkpoint = run.path / "checkpoint"
        self._versions = VersionLog(checkpoint / "clients.versions")
        states = ClientStates(
            checkpoint / "clients", of_process, len(data.clients), accelerator.device, settings.memory
        )
        self.attackers = self.attack.draw(len(data.clients), settings.rand_seed) if self.attack else frozenset()
        evaluation = Evaluation(
            data,
            accelerator,
            n_clients=settings.evaluate_clients,
            seed=settings.rand_seed,
            left_out=self.attackers,
            apart=settings.evaluate_apart,
        )
        within = Surroundings(
            accelerator,
            is_summed=self.algorithm.is_summed,
            buffers=frozenset(name for name, _ in full_model(self.model).named_buffers()),
            left_alone=self.algorithm.left_alone,
            reported=(LOSS,),
            folder=checkpoint,
            memory=settings.memory,
        )
        self._uploads: Uploads = config.aggregation.uploads(within)
        if self.attack:
            self._uploads = AttackedUploads(self._uploads, self.attack, self.attackers, within, settings.rand_seed)
            if self.attack.false_targets:
                data = replace(data, images=with_false_targets(data.images, data.clients, self.attackers))
        self.here = ClientsHere(states, Trainer(self.model, data, config, states, self.shared), evaluation)
        self.states: States
        self.trainer: ClientTrainer
        self.states, self.trainer, self.evaluation = backend(self) if backend else self.here

    def train(self) -> list[dict[str, Any]]:
        """Run the remaining rounds; returns the metrics, one row per round, the first before any training.

        Ctrl-C or SIGTERM abort the round at the end of a step, save the last finished one and raise `Interrupted`.
        """
        with interrupt.deferred():
            self.resolve_vectorisation()
            if not self.rows:
                self._finish_round(0, {LOSS: float("nan"), STEPS: 0, **dict.fromkeys(TRAFFIC, 0), "seconds": 0.0})
            with progress.bar(
                range(len(self.rows) - 1, self.n_rounds),
                unit="round",
                desc=f"{type(self.algorithm).__name__} {self.data.images.task.name}",
                shown=self.accelerator.is_main_process,
            ) as bar:
                for round in bar:
                    start = time.perf_counter()
                    row = self._train_round(round)
                    self._finish_round(round + 1, row | {"seconds": time.perf_counter() - start})
                    bar.set_postfix(self._shown())
            if not self.evaluation.done:
                self._evaluate(self.n_rounds)
        copy_into(self._working, self.server)
        return self.rows

    def resume(self) -> None:
        """Continue from the run's checkpoint, or from the one before if it, or a client's state, is broken."""
        path, device = self.run.checkpoint, self.accelerator.device
        versions_of = self._versions.read
        tensors, state = load_newest(path, lambda state: self.states.check(versions_of(state["clients"])), self._any)
        self.states.restore(versions_of(state["clients"]), versions_of(state_before(path).get("clients", 0)))
        self._versions.go_on(state["clients"])
        self.server = {name: tensor.to(device) for name, tensor in strip_prefix("server", tensors).items()}
        self.rows = state["rows"]
        self.privacy.restore(state.get("privacy", {}))
        self._n_saved = len(self.rows)
        # Another number of clients at once, or of threads, would round differently.
        self.trainer.vectorisation = with_present_names(state["pace"])

    def resolve_vectorisation(self) -> None:
        """Choose how many clients train at once, if that was not given, and on how many threads, for all processes."""
        if "threads" not in self.trainer.vectorisation:
            # Every process tries, so that none is faster alone.
            mine = self.trainer.choose_vectorisation(self._most_at_once)
            self.trainer.vectorisation = from_main(self.accelerator, lambda: mine)
            if self.accelerator.is_main_process:
                write_json(self.run.path / "pace.json", self.trainer.vectorisation)
                print_vectorisation(self.trainer.vectorisation)
        torch.set_num_threads(self.trainer.vectorisation["threads"])

    def _most_at_once(self) -> int:
        """How many clients a process trains per round, where they are spread evenly."""
        return -(-len(self.cohort(0)) // self.accelerator.num_processes)

    def cohort(self, round: int) -> dict[int, ClientRound]:
        """The clients that take part in a round, each with its part in it."""
        rng = generator("clients", self.config.settings.rand_seed, round)
        sampled = self.config.sampling.cohort(self.data.clients, self.config.local, rng)
        return self.privacy.cohort(self.algorithm.cohort(sampled, self.data.clients))

    def _train_round(self, round: int) -> dict[str, Any]:
        """Train the clients of a round and update the server's model.

        Returns the clients' weighted mean loss, the largest number of steps, the traffic, and the method's own metrics.
        """
        cohort = self.cohort(round)
        metrics = self.algorithm.start_round(cohort, self._context())
        self._uploads.clear(self.server, round)
        first_bad: dict[int, Tensor] = {}
        stopped = False
        try:
            for client, upload, bad_step in self.trainer.train(cohort, self.server, round):
                first_bad[client] = bad_step
                if self.config.settings.on_nan == "stop" or bad_step < 0:
                    limited = self.privacy.limited(upload, self.server)
                    self._uploads.add(limited, cohort[client].weight, client)
        except interrupt.StopRequested:
            stopped = True
        except UserError:  # clients elsewhere that are away
            self._give_up_round()
            raise
        bad = self.agree(stopped, first_bad)
        self._judge(bad, round, cohort)
        sound = {client: client_round for client, client_round in cohort.items() if client not in bad}
        counted = sum(client_round.weight for client_round in sound.values())
        if not counted:  # Poisson sampling drew nobody, and the client that was trained in place of one keeps nothing
            self.states.roll_back()
        mean = self._uploads.mean(self.privacy.divisor(counted))
        mean, limits = self.privacy.released(mean, self.server, counted, round)
        row: dict[str, Any] = {
            LOSS: float(mean.pop(LOSS)),
            STEPS: max(client_round.n_steps for client_round in cohort.values()),
        }
        row |= metrics | self._uploads.metrics | limits
        uploaded = sum(value.numel() * _width(self.server.get(name)) for name, value in mean.items())
        traffic = self.algorithm.traffic(uploaded, self.server, self.shared, self._trained)
        row |= zip(TRAFFIC, traffic, strict=True)
        self.server = self.algorithm.server_step(self.server, mean) | self._uploads.state
        if isinstance(self.algorithm, WithoutServer):
            self.algorithm.end_round(sound, self._context())
        return row

    def label(self) -> str:
        """The method in figures, with the aggregator and who attacks, where that is not the usual."""
        parts = [self.algorithm.label()]
        if not isinstance(self.config.aggregation, Mean):
            parts.append(self.config.aggregation.label())
        if self.attack:
            parts.append(f"{counted(len(self.attackers), 'attacker')} ({self.attack.title})")
        return ", ".join(parts)

    def costs(self) -> dict[str, Any]:
        """The costs of the model, of a client and of a round, for the run's summary."""
        rounds = self.rows[1:]
        sent = [name for name, _ in self.model.named_parameters() if name in self.shared]
        return {
            **model_costs(self.model, self.data.images, TRAINABLE[self.config.local.train]),
            "parameters_sent": sum(self.server[name].numel() for name in sent),
            **{name: float(np.mean([row[name] for row in rounds])) for name in (*TRAFFIC, "seconds")},
            **peak_memory(self.data.images.device),
        }

    def agree(self, stopped: bool, first_bad: Mapping[int, Tensor]) -> dict[int, int]:
        """All processes' clients whose loss was not finite, with the step; raises Interrupted if one was stopped."""
        steps = torch.stack(list(first_bad.values())).tolist() if first_bad else []
        mine = {client: step for client, step in zip(first_bad, steps, strict=True) if step >= 0}
        of_all = [(stopped, mine)]
        if self.accelerator.num_processes > 1:
            of_all = gather_object(of_all)
        if any(stopped for stopped, _ in of_all):
            self._give_up_round()
            where = f"{len(self.rows) - 1} of {self.n_rounds} rounds are saved in {self.run.path}"
            line = f"interrupted; {where}; go on with: {interrupt.resume_command()}"
            raise interrupt.Interrupted(line if self.accelerator.is_main_process else "")
        return {client: step for _, bad in of_all for client, step in sorted(bad.items())}

    def _judge(self, bad: Mapping[int, int], round: int, cohort: Mapping[int, ClientRound]) -> None:
        """If clients' losses were not finite, raise UserError or leave them out of the round with a warning."""
        if not bad:
            return
        names = ", ".join(f"client {client} in step {step + 1}" for client, step in sorted(bad.items()))
        message = f"the loss is not finite in round {round + 1}: {names}"
        if self.config.settings.on_nan == "stop" or len(bad) == len(cohort):
            self._give_up_round()
            raise UserError(f"{message}; lower --init_lr, or leave such clients out with --on_nan skip_client")
        if self.accelerator.is_main_process:
            progress.say(f"{message}; left out of this round")
        self.states.roll_back([client for client in bad if client in self.states.of_process])

    def _give_up_round(self) -> None:
        """Undo what clients have saved in this round, and make sure that the last finished one is on disk."""
        self.states.roll_back()
        if self._n_saved < len(self.rows):
            self._save()

    def _load_personal(self, client: int) -> None:
        """Copy a client's personal model into the working copy."""
        state = self.here.states.load(client)
        copy_into(self._working, self.algorithm.personal_model(self.here.trainer.start(state, self.server), state))

    def _shown(self) -> dict[str, str]:
        """The losses on the progress bar: those of the last round's training and of the latest evaluation."""
        whose = "personal_" if self.has_personal else ""
        columns = {"clients": f"{whose}train_loss_mean", "held_out": f"{whose}local_test_loss_mean"}
        evaluated = next(row for row in reversed(self.rows) if columns["clients"] in row)
        values = {"train": self.rows[-1][LOSS]} | {label: evaluated[column] for label, column in columns.items()}
        spent = {"ε": f"{evaluated['epsilon']:.3g}"} if "epsilon" in evaluated else {}
        return {label: f"{value:.4f}" for label, value in values.items()} | spent

    def _finish_round(self, round: int, row: dict[str, Any]) -> None:
        """Write the round's metrics; evaluate the models and write a checkpoint where they are due."""
        if is_due(round, self.config.settings.evaluate_every, self.n_rounds):
            row |= self._evaluate(round) | self.privacy.spent(round)
            if isinstance(self.algorithm, WithoutServer):
                row |= self.algorithm.measured(self._context())
        self.rows.append({"round": round, **row})
        if self.accelerator.is_main_process:
            self.run.write_metrics(self.rows)
        if is_due(round, self.config.settings.checkpoint_every, self.n_rounds):
            self._save()
        else:
            self.states.finish_round()

    def _evaluate(self, round: int) -> dict[str, float]:
        """The columns of the server's and the personal models, where there are any; UserError if one has diverged."""
        row: dict[str, float] = {}
        judged = []
        if self.has_global:
            copy_into(self._working, self.server)
            row |= self.evaluation.of_server(self.model, self.states.of_process)
            judged += ["train_loss_mean", "test_loss"]
        if self.has_personal:
            row |= self.evaluation.of_clients(self.model, self._load_personal, self.states.of_process)
            judged += ["personal_train_loss_mean"]
        self.check_sound(round, {name: row[name] for name in judged})
        if self.data.non_participating:
            copy_into(self._working, self.received_model())
            row |= self.evaluation.of_non_participating(self.model)
            row |= participation_gaps(row, row["unseen_test_loss_mean"])
        return row

    def received_model(self) -> Mapping[str, Tensor]:
        """The tensors of the model that a client gets which has not taken part; all processes must call it."""
        return self.algorithm.received_model(self._context())

    def _context(self) -> ServerContext:
        """The server as it is now, for the method's hooks."""
        return ServerContext(self.model, self.server, self.here.states, partial(total, accelerator=self.accelerator))

    def check_sound(self, round: int, losses: Mapping[str, float]) -> None:
        """UserError if models have diverged by these losses, or are unfit before the first round."""
        # A client with nothing to count has no loss; a model that diverged has a finite loss on no client.
        if not np.isfinite(list(losses.values())).all():
            remedy = "lower --init_lr" if round else "it has learnt nothing yet: look at the initial model and the data"
            raise UserError(f"the loss is not finite after round {round}; {remedy}")
        for name, value in losses.items() if round else ():
            if value > _DIVERGED * max(before := self.rows[0][name], 1.0):
                raise UserError(f"the loss is {value:.1e} after round {round} and was {before:.3g}; lower --init_lr")

    def _save(self) -> None:
        """Write the clients' states, then the checkpoint that refers to them, and only then remove old ones."""
        parts = [self.states.checkpoint()]
        if self.accelerator.num_processes > 1:
            parts = gather_object(parts)
        if self.accelerator.is_main_process:
            versions = {client: version for of_process in parts for client, version in of_process.items()}
            state = {"rows": self.rows, "clients": self._versions.add(versions), "pace": self.trainer.vectorisation}
            state |= {"privacy": privacy} if (privacy := self.privacy.state()) else {}
            save_checkpoint(self.run.checkpoint, add_prefix("server", self.server), state)
        self.accelerator.wait_for_everyone()
        self.states.forget_old()
        self._n_saved = len(self.rows)

    def _any(self, mine: bool) -> bool:
        """Whether `mine` is true in any process."""
        return any(gather_object([mine])) if self.accelerator.num_processes > 1 else mine


def _width(like: Tensor | None) -> int:
    """Bytes per number of an upload: as in the server's tensor, or single precision where it has none."""
    return 4 if like is None else like.element_size()


def shared_run(accelerator: Accelerator, make: Callable[[], Run]) -> Run:
    """The run that the main process makes and locks, for all processes."""
    own = [make()] if accelerator.is_main_process else []  # with the lock
    path = from_main(accelerator, lambda: own[0].path)
    return own[0] if own else Run(path)
