"""Something that happens while a run works."""

from s3t import WorkStep


class Meanwhile:
    """A progress listener that does something, once, at the first step."""

    def __init__(self, action):
        self.action = action
        self.done = False

    def __call__(self, event):
        if isinstance(event, WorkStep) and not self.done:
            self.done = True
            self.action()
