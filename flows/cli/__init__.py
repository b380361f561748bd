"""The `nightshift` command, with a folder for each group of verbs."""


def main() -> None:
    """The console script."""
    from flows.cli import app

    app.main()
