"""`nightshift skill install`: the instructions by which a coding agent drives a campaign, and a pointer to them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cyclopts import App

SOURCE = Path(__file__).with_name("skill")
SKILL, WORD = "SKILL.md", "AGENTS.md"

skill = App(name="skill", help="Teach a coding agent to use Nightshift.")


@skill.command(name="install")
def skill_install(*, to: Path | None = None) -> int:
    """Write the skill for coding agents into this project, as DIR/nightshift/SKILL.md.

    Example: nightshift skill install --to ~/.codex/skills

    Args:
        to: Folder of skills. Default: .claude/skills if .claude is there, else .agents/skills.
    """
    folder = to or Path(".claude/skills" if Path(".claude").is_dir() else ".agents/skills")
    place = folder.expanduser() / "nightshift"
    command = Path(sys.executable).with_name("nightshift")  # agents start shells in which no environment is active
    place.mkdir(parents=True, exist_ok=True)
    text = (SOURCE / SKILL).read_text()
    (place / SKILL).write_text(f"{text}\nWhere a shell does not find `nightshift`, it is `{command}`.\n")
    print(f"wrote {place / SKILL}")
    return 0


def leave_word(folder: Path) -> None:
    """Tell agents that come upon an environment how it is used; a file of the user's own stays."""
    if not (folder / WORD).exists():
        shutil.copyfile(SOURCE / WORD, folder / WORD)
