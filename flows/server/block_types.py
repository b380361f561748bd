"""The block types of blocks/, made known to a Prefect server, whose page Blocks then offers their forms.

Reading and saving a block makes its type known too; registered before, a block can be made in the page.
"""

from __future__ import annotations


def register() -> list[str]:
    """Register every block type at the server that Prefect is connected to; their names. It changes nothing twice."""
    from blocks.endpoint import TrainingEndpoint
    from blocks.llm import LLM
    from blocks.tracking import Tracking

    blocks = (LLM, TrainingEndpoint, Tracking)
    for block in blocks:
        block.register_type_and_schema()
    return [str(block.get_block_type_slug()) for block in blocks]
