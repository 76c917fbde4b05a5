"""The rounds of a federation: clients' local training, the server, evaluation and checkpoints."""
