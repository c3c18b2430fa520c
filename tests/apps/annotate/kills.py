"""People answer all the time while the server, and the database, are killed: is every acknowledged answer kept once?"""

import http.client
import json
import random
import threading
import time
import urllib.error
from collections import Counter

from prefkin.apps.annotate.store import Store
from tests.apps.annotate.conftest import Server


class Person(threading.Thread):
    """Somebody who answers, and sends an answer again until it is acknowledged."""

    def __init__(self, server, name, link, stop):
        super().__init__(daemon=True)
        self.server, self.label, self.token, self.stop = server, name, link, stop
        self.acknowledged = []  # question and choice
        self.problems = []
        self.rng = random.Random(name)

    def run(self):
        question = self.insist("GET", "/api/question")["id"]
        while not self.stop.is_set():
            shown = self.insist("GET", "/api/question")["id"]
            if shown != question:
                self.problems.append(f"{self.label} had {question}, and was shown {shown}")
            choice = self.rng.choice(["left", "right", "skip"])
            taken = self.insist("POST", "/api/answer", {"id": shown, "choice": choice})
            self.acknowledged.append((shown, choice))
            question = taken["next"]["id"]

    def insist(self, method, path, body=None):
        while True:
            try:
                return self.server.call(method, path, self.token, body)
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503):
                    raise
            except (OSError, http.client.HTTPException, json.JSONDecodeError):  # killed meanwhile
                pass
            time.sleep(0.05)


def kill_round(folder, url, kills, people=20, cluster=None, seed=0):
    """Kill at random moments; how often, what was acknowledged, and what is wrong with the store afterwards."""
    rng, stop = random.Random(seed), threading.Event()
    names = [f"person {i}" for i in range(people)]
    (folder / "people.csv").write_text("user\n" + "\n".join(names) + "\n")
    with Server(folder, "--items", "items.csv", "--people", "people.csv", "--store", url) as server:
        everybody = [Person(server, name, server.links["people"][name], stop) for name in names]
        for person in everybody:
            person.start()
        done = 0
        try:
            while done < kills:
                time.sleep(rng.uniform(0.05, 1.5))
                if cluster is not None and done % 2:
                    cluster.kill()
                    cluster.start()
                else:
                    server.kill()
                    server.start()
                done += 1
        except KeyboardInterrupt:  # whoever has no more time learns how it was until then
            if cluster is not None:
                cluster.stop()
                cluster.start()
            server.kill()
            server.start()
        time.sleep(1.0)
        stop.set()
        for person in everybody:
            person.join(timeout=60)
            assert not person.is_alive(), f"{person.label} never got an answer"
    problems = [problem for person in everybody for problem in person.problems]
    store = Store.open(url)
    for known, history in store.histories().items():
        person = next(person for person in everybody if person.label == known.name)
        kept = [(answer.question.id, answer.choice) for answer in history.closed]
        twice = [question for question, n in Counter(question for question, _ in kept).items() if n > 1]
        if twice or kept != person.acknowledged:
            problems.append(f"{known.name}: {len(person.acknowledged)} acknowledged, {len(kept)} kept, twice: {twice}")
    store.close()
    return done, sum(len(person.acknowledged) for person in everybody), problems
