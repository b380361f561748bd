"""How this machine is divided into slots: by the Machine block, or by the GPUs and cores that it has."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from environments import Environment
from environments.plugins import Refused
from tasks.machine import gpus
from tasks.machine.gpus import Gpu
from tasks.machine.slots import Slots
from tasks.system.commands import Unanswered
from tasks.system.slot import VISIBLE

BLOCK = "nightshift"
REMOTE, REMOTE_SLOTS = ".remote", 64
"""Name and number of the slots of trials that other machines train; here they only wait, and are judged."""


@dataclass(frozen=True)
class Layout:
    """The division that a Machine block states (blocks/machine.py)."""

    gpus: tuple[tuple[int, ...], ...] = ()
    """Groups of GPUs by nvidia-smi's numbers; empty: every GPU is its own group."""
    cpu_slots: int | None = None
    """How many cores are shared out; None: all usable ones."""


def here(home: Path, environment: Environment, layout: Layout = Layout()) -> Slots:
    """The slots for an environment's programs: GPUs if its device allows and there are any, else the CPU.

    GPUs that CUDA_VISIBLE_DEVICES hides from this process are left out.

    Raises:
        Refused: the layout names a missing GPU, a run needs more GPUs than a slot has or more cores than are here, or
            device is cuda and the driver does not answer.
    """
    judged_on_gpus = environment.device != "cpu" and getattr(environment.judge, "backend", "openai") != "openai"
    if environment.remote and not judged_on_gpus:  # trials wait for another machine, beside those that train here
        return Slots(home / REMOTE, cpu_slots=layout.cpu_slots or REMOTE_SLOTS)
    check_cores(environment, layout)
    on_cpu = Slots(home, cpu_slots=layout.cpu_slots, cores=environment.cores)
    if environment.device == "cpu" or not gpus.can_be_asked():  # GPUs of other makers are not locked
        return on_cpu
    try:
        found, words = gpus.ask_gpus()
    except (Unanswered, OSError) as silent:
        found, words = [], [str(silent)]
    if not found and words and environment.device == "cuda":
        raise Refused(f"device = 'cuda', but {'; '.join(words)}: see `nightshift doctor`")
    groups = _grouped(layout, found, gpus.visible(found, os.environ.get(VISIBLE)), environment.gpus)
    fitting = tuple(group for group in groups if len(group) >= environment.gpus)
    if groups and not fitting:
        has = ", ".join("-".join(str(gpu.index) for gpu in group) for group in groups)
        needs = f"a run of {environment.name} needs {environment.gpus} GPUs"
        raise Refused(f"{needs}, and the slots of this machine are of GPU {has}: see {VISIBLE} and the Machine block")
    return Slots(home, fitting) if fitting else on_cpu


def check_cores(environment: Environment, layout: Layout = Layout()) -> None:
    """Refuse an environment whose runs need more cores than this process may use, or the layout shares out."""
    usable, wanted = len(os.sched_getaffinity(0)), environment.cores
    has = min(usable, layout.cpu_slots or usable)
    if wanted > has:
        here = f"this machine has {has} usable core{'s' * (has > 1)}"
        limit = f"the Machine block says cpu_slots = {has}" if has < usable else here
        raise Refused(
            f"a run of {environment.name} needs {wanted} cores (cores = {wanted}), and {limit}: use a machine with "
            f"more, or begin with --set cores={has}"
        )


def saved_layout() -> Layout:
    """The layout saved for this machine at the Prefect server that this process uses, else an empty one.

    It is in the Machine block `nightshift-<host>`, for servers that several machines share, else in `nightshift`.
    Raises ConnectionError when no server answers there.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from blocks.machine import Machine

    api = PREFECT_API_URL.value() or os.environ.get("PREFECT_API_URL")
    if not api:
        return Layout()
    try:
        # Prefect may have been imported before the address was set; it would start a server of its own.
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            for name in (f"{BLOCK}-{host()}", BLOCK):
                with suppress(ObjectNotFound):
                    saved = client.read_block_document_by_name(name, Machine.get_block_type_slug())
                    block = Machine.model_validate(saved.data)
                    return Layout(tuple(map(tuple, block.gpus)), block.cpu_slots)
    except httpx.TransportError as error:
        raise ConnectionError(f"no Prefect server answers at PREFECT_API_URL={api}: start it, or unset it") from error
    return Layout()


def host() -> str:
    """This machine's name with the characters that a block's name may have: a-z, 0-9 and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", platform.node().lower()).strip("-")


def _grouped(layout: Layout, found: Sequence[Gpu], seen: Sequence[Gpu], each: int) -> tuple[tuple[Gpu, ...], ...]:
    """The layout's groups whose GPUs are all visible; without a layout, the visible GPUs in groups of `each`."""
    if not layout.gpus or not found:
        whole = [tuple(seen[at : at + each]) for at in range(0, len(seen), each)]
        return tuple(group for group in whole if len(group) == each) or tuple(whole)
    by_index = {gpu.index: gpu for gpu in found}
    states = f"the Machine block says gpus = {list(map(list, layout.gpus))}"
    if not by_index.keys() >= {index for group in layout.gpus for index in group}:
        raise Refused(f"{states}, but this machine has {', '.join(map(str, by_index))}: correct it")
    groups = (tuple(by_index[index] for index in group) for group in layout.gpus)
    mine = tuple(group for group in groups if all(gpu in seen for gpu in group))
    if not mine:
        hidden = f"{VISIBLE} = {os.environ.get(VISIBLE)!r} hides a GPU of each group"
        raise Refused(f"{states}, and {hidden}: name whole groups, or unset it")
    return mine
