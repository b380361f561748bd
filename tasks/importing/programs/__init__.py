"""Programs that importers write into environments. They run there by themselves, and import nothing of ours."""
