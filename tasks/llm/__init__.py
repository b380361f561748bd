"""Language models as researchers: whom to ask (`account`), asking (`chat`), in which words (`prompts`)."""
