"""Something that happens while a run trains."""


class Meanwhile:
    """A progress listener that does something, once, when the first stage trains."""

    def __init__(self, action):
        self.action = action
        self.done = False

    def start(self, what, total): ...

    def finish(self): ...

    def note(self, what): ...

    def advance(self, count):
        if not self.done:
            self.done = True
            self.action()
