"""The `nightshift` command."""


def main() -> None:
    """The console script."""
    from flows.cli import app

    app.main()
