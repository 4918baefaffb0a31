"""Endpoints: the objects of A or B, and the commands that make and use them."""

from copy import copy

from lab.interop.rows.row import Region, RowError

# Fields of commands that are names of objects.
NAMES = ("name", "pd", "mr", "cq", "send_cq", "recv_cq", "srq", "qp")


class Endpoint:
    """A side of an exchange. Names of its objects begin with its letter: both sides may be in one
    agent.
    """

    def __init__(self, letter, backend, address, end, row, seeds):
        self.letter, self.backend, self.address = letter, backend, address
        self.end, self.row = end, row
        self.keys = {}
        self.qp = "qp"
        self.regions = {
            name: end.regions.get(name, Region(seed=seed)) for name, seed in seeds.items()
        }
        self.regions |= {name: region for name, region in end.regions.items() if name not in seeds}

    def do(self, *commands):
        """The answers to commands of which none may fail."""
        answers = self.try_to(*commands)
        for command, answer in zip(commands, answers, strict=True):
            if "error" in answer:
                text = f"{answer['error']} {answer['text']}"
                raise RowError(f"{self.backend.label}: {command}: {text}")
        return answers

    def try_to(self, *commands):
        return self.backend.ask([self.named(command) for command in commands])

    def named(self, command):
        """The command with this side's letter before the names of objects."""
        return {
            key: f"{self.letter}.{value}" if key in NAMES else value
            for key, value in command.items()
        }

    def create(self):
        """Creates all objects, and fills the regions."""
        end = self.end
        commands = [
            {"do": "pd", "name": "pd"},
            {"do": "pd", "name": "other"},
            {"do": "cq", "name": "sends", "size": end.send_cq_size},
            {"do": "cq", "name": "recvs", "size": 256},
        ]
        if end.srq:
            max_wr, limit = end.srq["max_wr"], end.srq.get("limit")
            srq = {"do": "srq", "name": "srq", "pd": "pd", "max_wr": max_wr, "max_sge": 4}
            commands.append(srq)
            if limit:
                commands.append({"do": "srq_limit", "srq": "srq", "limit": limit})
        first_region = len(commands)
        commands += [
            {"do": "mr", "name": name, "pd": region.pd, "length": region.length}
            | {"access": list(region.access)}
            for name, region in self.regions.items()
        ]
        commands += [
            {"do": "fill", "mr": name, "offset": 0, "length": region.length, "seed": region.seed}
            for name, region in self.regions.items()
        ]
        answers = self.do(*commands, self.queue_pair())
        self.keys = dict(zip(self.regions, answers[first_region:], strict=False))
        self.qpn = answers[-1]["qpn"]

    def queue_pair(self):
        """Command that creates a queue pair."""
        qp = {"do": "qp", "name": self.qp, "pd": "pd", "type": self.row.service}
        qp |= {"caps": self.end.caps, "send_cq": "sends", "recv_cq": "recvs"}
        if self.end.srq:
            qp["srq"] = "srq"
        return qp

    def another(self, name):
        """The same side with one more queue pair, which is created."""
        other = copy(self)
        other.qp = name
        other.qpn = other.do(other.queue_pair())[0]["qpn"]
        return other

    def transitions(self, other, psn, other_psn):
        """Commands from RESET to the last state."""
        end, service = self.end, self.row.service
        init = {"qkey": end.qkey} if service == "ud" else {"access": list(end.access)}
        rtr, rts = {}, {"sq_psn": psn}
        if service != "ud":
            qpn = other.qpn if end.dest_qpn is None else end.dest_qpn
            peer = {"address": other.address, "qpn": qpn, "path_mtu": end.path_mtu}
            rtr = {"peer": peer, "rq_psn": other_psn}
        if service == "rc":
            rtr |= pick(end, "max_dest_rd_atomic", "min_rnr_timer")
            rts |= pick(end, "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic")
        steps = [("init", init), ("rtr", rtr), ("rts", rts)]
        count = ["reset", "init", "rtr", "rts"].index(end.last_state)
        return [
            {"do": "modify", "qp": self.qp, "to": {state: attributes}}
            for state, attributes in steps[:count]
        ]

    def sge(self, place):
        """A place as a scatter/gather element."""
        keys = self.keys[place.region]
        key = keys["lkey"] if place.key is None else place.key
        return {"lkey": key, "address": keys["address"] + place.offset, "length": place.length}

    def target(self, place):
        """A place as a peer names it."""
        keys = self.keys[place.region]
        key = keys["rkey"] if place.key is None else place.key
        return {"rkey": key, "address": keys["address"] + place.offset}

    def request(self, number, wr, other):
        made = {"id": number, "op": wr.op, "flags": list(wr.flags), **wr.values}
        if wr.inline:
            made["inline"] = wr.inline
        else:
            made["sges"] = [self.sge(place) for place in wr.near]
        if wr.far:
            made["remote"] = other.target(wr.far)
        if wr.op == "send_invalidate" and wr.far:
            made["rkey"] = made.pop("remote")["rkey"]
        if wr.imm is not None:
            made["imm"] = wr.imm
        if wr.raw:
            made["raw"] = True
        if self.row.service == "ud":
            destination = {"address": other.address, "qpn": other.qpn, "qkey": other.end.qkey}
            for key, change in (wr.destination or {}).items():
                destination[key] = change(destination[key]) if callable(change) else change
            made["destination"] = destination
        return made

    def sending(self, wrs, other, first=1):
        """Command that posts send requests, numbered from `first`."""
        requests = [self.request(first + n, wr, other) for n, wr in enumerate(wrs)]
        return {"do": "send", "qp": self.qp, "wrs": requests}

    def receiving(self, recvs, first=1):
        """Command that posts receive requests, numbered from `first`."""
        wrs = [
            {"id": first + n, "sges": [self.sge(place) for place in places]}
            for n, places in enumerate(recvs)
        ]
        queue = {"srq": "srq"} if self.end.srq else {"qp": self.qp}
        return {"do": "recv", **queue, "wrs": wrs}


def pick(end, *names):
    return {name: getattr(end, name) for name in names}
