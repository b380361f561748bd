"""Your own program, in any language: the environment's `train_cmd`, started in the trial's workspace.

It gets its parameters from placeholders in `train_cmd` (`--lr {lr} --out {out}`) or from config.json, and leaves a
model in `{out}`. Progress lines in out/progress.jsonl are optional. This file is never copied: `program` and
`train_cmd` in environment.toml name what runs.
"""

raise SystemExit("the trainer 'command' has no program of its own: set train_cmd in environment.toml")
