"""Prompts: Markdown files as Jinja templates. An environment's own replace ours.

Ours lie beside this file, in `prompts/`. A file of the same name in the environment's `prompts/` replaces it; since
prompts include each other, that may be one part alone. Their values:

    problem, told           tasks.proposing.brief.Problem, and the campaign in words (tasks.llm.prompt_parts.told)
    count, form             how many proposals are asked for, and how an edit is to be written
    reason, before          why the last answer cannot be tried, and what an agent had changed, quoted
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from environments import plugins
from environments.plugins import Refused
from tasks.proposing.brief import Brief, Problem

if TYPE_CHECKING:
    import jinja2

OURS = Path(__file__).parent / "prompts"
DEFAULTS: dict[str, object] = {"count": 1, "form": "search_replace", "reason": "", "before": ""}
"""Values that only some prompts are given, as the others have them: a part may be in any prompt."""


def render(name: str, folder: Path | None, **values: object) -> str:
    """The prompt of that name, with its values filled in; files of `folder` stand before ours.

    Raises:
        Refused: a prompt of the folder that is no template, or that names what there is not.
    """
    import jinja2

    try:
        return _environment(folder).get_template(f"{name}.md").render(DEFAULTS | values).strip() + "\n"
    except RecursionError as endless:
        raise Refused(f"prompt {name}.md includes itself: write into your file what you need of ours") from endless
    except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, OSError) as wrong:
        # A fault in a part is told with the part's own place.
        line = f", line {wrong.lineno}" if isinstance(wrong, jinja2.TemplateSyntaxError) else ""
        raise Refused(
            f"prompt {getattr(wrong, 'filename', None) or f'{name}.md'}{line}: {wrong}. Values that a prompt may name: "
            f"{', '.join(('problem', 'told', *DEFAULTS))}"
        ) from wrong


def check(folder: Path | None) -> None:
    """Refuse an environment's own prompts that cannot be said of a campaign that is yet to begin."""
    from tasks.llm.prompt_parts import told  # loads numeric search, too

    problem = Problem(editable=("train.py",))
    for path in sorted(folder.glob("*.md")) if folder else ():
        plugins.require(path.stem, names(), "prompt", str(folder))
        render(path.stem, folder, problem=problem, told=told(Brief({}, (), problem=problem)))


def names() -> tuple[str, ...]:
    """The prompts that there are, parts of others included."""
    return tuple(sorted(path.stem for path in OURS.glob("*.md")))


@lru_cache(maxsize=8)
def _environment(folder: Path | None) -> jinja2.Environment:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Sandboxed: an environment may come from elsewhere, and a prompt has no business but to be filled in.
    return ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader([*([folder] if folder else []), OURS]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # a prompt is no web page
    )
