"""What importers read with: storages, parameters, results and defaults of other tools."""
