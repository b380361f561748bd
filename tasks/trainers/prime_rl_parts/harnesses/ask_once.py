"""A verifiers harness for single-turn questions. It runs in prime-rl's processes, with its Python."""

from __future__ import annotations

import httpx
import verifiers.v1 as vf

__all__ = ["AskOnce"]


class AskOnce(vf.Harness[vf.HarnessConfig]):
    """Asks once, in-process: a program per answer would cost more than the answer."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: vf.ModelContext, trace: vf.Trace, runtime: vf.Runtime, endpoint: str, secret: str,
        mcp_urls: dict[str, str], data: vf.TaskData,
    ) -> vf.ProgramResult:  # fmt: skip
        system, prompt = self.resolve_prompt(data)
        said = [("system", system)] if system else []
        messages = [{"role": role, "content": text} for role, text in [*said, ("user", prompt)]]
        async with httpx.AsyncClient(timeout=None, verify=False, trust_env=False) as client:  # loopback alone
            reply = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        return vf.ProgramResult(0 if reply.is_success else 1, "", "" if reply.is_success else reply.text)
