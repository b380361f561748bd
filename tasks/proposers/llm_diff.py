"""LLM diff: a language model reads the history and the champion's program, and changes the program."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from tasks.editing.edits import EditFailed, changed
from tasks.llm.answers import Misread, headed
from tasks.llm.chat import ask
from tasks.proposers._researcher import Researcher, conversation
from tasks.proposing.brief import Brief, Suggestion, Unavailable, Unusable


class LlmDiff(Researcher):
    """An edit of the champion's program by a language model, which may change parameters too."""

    edits: ClassVar[bool] = True

    form: Literal["search_replace", "whole_file", "diff"] = "search_replace"
    """The format that is asked for: search and replace suits strong models, whole files small ones. All are read."""

    def propose(self, brief: Brief) -> Suggestion:
        account, editable = self.accounts()[0], brief.problem.editable
        if not editable:
            raise Unavailable("the environment has no editable files: `editable` in environment.toml lists them")
        answer = ask(account, conversation("edit", brief, brief, form=self.form), brief)
        try:
            idea, edit = headed(answer.text, brief)
            only_params = idea.params != brief.start and not edit.strip()
            files = None if only_params else changed(edit, brief.files, editable)
        except (Misread, EditFailed, RecursionError) as wrong:
            raise Unusable(str(wrong), answer.text, answer.usage) from wrong
        return replace(idea, files=files, usage=answer.usage, model=account.model)
