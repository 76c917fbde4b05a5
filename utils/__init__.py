"""What all parts of the project share."""

import os

# Threads that wait for each other sleep, and leave the core to others, instead of spinning. The runtime of PyTorch's
# threads (libgomp in its wheels) reads this once, when it is loaded, and has no function for it: scripts import this
# package before PyTorch. Processes that they start inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
