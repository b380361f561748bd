"""Your own program, in any language: the environment's `train_cmd`, started in the trial's workspace.

It is told its parameters by placeholders in `train_cmd` (`--lr {lr} --out {out}`), or reads config.json; it leaves a
model in `{out}`. Progress lines in out/progress.jsonl are welcome, not required. There is no program here to copy:
what runs is what `program` and `train_cmd` in environment.toml say.
"""

raise SystemExit("the trainer 'command' has no program of its own: set train_cmd in environment.toml")
