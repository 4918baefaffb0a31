"""Other programs that want the processor: one that only counts, for each core."""

import os
import subprocess


class OtherPrograms:
    """A context in which they run, at the usual priority."""

    def __enter__(self):
        # They end with this process, however it ends; Ctrl-C is not for them.
        loop = ["setpriv", "--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"]
        count = len(os.sched_getaffinity(0))
        self.running = []
        for _ in range(count):
            self.running.append(subprocess.Popen(loop, start_new_session=True))
        return self

    def __exit__(self, *_):
        for program in self.running:
            program.kill()
            program.wait()
