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
    """Groups of GPUs by nvidia-smi's numbers; empty: groups of as many as a run needs."""
    cpu_slots: int | None = None
    """How many cores are shared out; None: all usable ones."""


def here(home: Path, environment: Environment, layout: Layout = Layout()) -> Slots:
    """The slots for an environment's programs: GPUs if its device allows and there are any, else the CPU.

    GPUs that CUDA_VISIBLE_DEVICES hides from this process are left out.

    Raises:
        Refused: no slot has as many GPUs or cores as a run needs, or device is cuda and the driver does not answer.
    """
    judged_on_gpus = environment.device != "cpu" and getattr(environment.judge, "backend", "openai") != "openai"
    if environment.remote and not judged_on_gpus:  # trials wait for another machine, beside those that train here
        return Slots(home / REMOTE, cpu_slots=layout.cpu_slots or REMOTE_SLOTS)
    check_cores(environment, layout)
    found: list[Gpu] = []
    if environment.device != "cpu" and gpus.can_be_asked():  # GPUs of other makers are not locked
        try:
            found, words = gpus.ask_gpus()
        except (Unanswered, OSError) as silent:
            words = [str(silent)]
        if not found and words and environment.device == "cuda":
            raise Refused(f"device = 'cuda', but {'; '.join(words)}: see `nightshift doctor`")
    if groups := _groups(environment, layout, found):
        return Slots(home, groups)
    return Slots(home, cpu_slots=layout.cpu_slots, cores=environment.cores)


def check_cores(environment: Environment, layout: Layout = Layout()) -> None:
    """Refuse an environment whose runs need more cores than this process may use, or the layout shares out."""
    usable, wanted = len(os.sched_getaffinity(0)), environment.cores
    has = min(usable, layout.cpu_slots or usable)
    if wanted > has:
        limit = f"the Machine block says cpu_slots = {has}" if has < usable else f"this machine has {has} usable"
        needs = f"a run of {environment.name} needs {wanted} cores (cores = {wanted})"
        raise Refused(f"{needs}, and {limit}: use a machine with more, or begin with --set cores={has}")


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
    host = re.sub(r"[^a-z0-9]+", "-", platform.node().lower()).strip("-")  # the characters of a block's name
    try:
        # Prefect may have been imported before the address was set; it would start a server of its own.
        with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
            for name in (f"{BLOCK}-{host}", BLOCK):
                with suppress(ObjectNotFound):
                    saved = client.read_block_document_by_name(name, Machine.get_block_type_slug())
                    block = Machine.model_validate(saved.data)
                    return Layout(tuple(map(tuple, block.gpus)), block.cpu_slots)
    except httpx.TransportError as error:
        raise ConnectionError(f"no Prefect server answers at PREFECT_API_URL={api}: start it, or unset it") from error
    return Layout()


def _groups(environment: Environment, layout: Layout, found: Sequence[Gpu]) -> tuple[tuple[Gpu, ...], ...]:
    """The groups of visible GPUs that are large enough for a run; none without GPUs. Refused if there are GPUs, and no
    such group."""
    stated, each = os.environ.get(VISIBLE), environment.gpus
    seen = gpus.visible(found, stated)
    groups = [tuple(seen[at : at + each]) for at in range(0, len(seen), each)]
    if layout.gpus and found:
        usable = {gpu.index: gpu for gpu in found if gpu in seen}
        groups = [tuple(usable[index] for index in group) for group in layout.gpus if usable.keys() >= set(group)]
    fitting = tuple(group for group in groups if len(group) >= each)
    if found and (seen or layout.gpus) and not fitting:
        facts = [f"the Machine block says gpus = {list(map(list, layout.gpus))}"] if layout.gpus else []
        facts += [f"this machine has GPU {', '.join(str(gpu.index) for gpu in found)}"]
        facts += [f"{VISIBLE} is {stated!r}"] if stated is not None else []
        raise Refused(f"a run of {environment.name} needs {each} GPUs in a slot, and {', '.join(facts)}: correct these")
    return fitting
