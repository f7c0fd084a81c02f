"""A module that cannot be preloaded: importing it starts a thread."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
