"""Where devices are, as --devices says, and what puts a program on them under any launcher.

A rank takes the GPU of its number on its host out of those that it is shown. So a program is
started by words that show each host its own devices, and that end a rank on any other host: no
launcher has to forward a variable, and none can place a rank elsewhere unseen.
"""
import itertools
import re
import shlex

DEVICE = re.compile(r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*):)?(?P<device>[A-Za-z0-9][\w-]*)")
ELSEWHERE = ('*) echo "stowage_accept: rank on host $host, which is none of {hosts}" >&2; '
             'exit 3 ;;')


class Devices:
    """@param given the list of --devices, or None: those of one host, in order
    Throws ValueError with a sentence for a list that cannot be."""

    def __init__(self, given, ranks):
        self.given = bool(given)
        self.names = given.split(",") if given else [str(i) for i in range(ranks)]
        self.at = {}
        for name in self.names:
            found = DEVICE.fullmatch(name)
            if not found:
                raise ValueError(f"--devices: '{name}' is no device, as 0 or n01:0")
            self.at[name] = (found["host"], found["device"])
        if len(self.at) != len(self.names):
            raise ValueError(f"--devices {given}: a device stands there twice")
        if len(self.names) != ranks:
            raise ValueError(f"--devices names {len(self.names)}, --ranks is {ranks}")
        hosts = {host for host, _ in self.at.values()}
        if len(hosts) > 1 and None in hosts:
            raise ValueError(f"--devices {given}: either all have a host or none")

    def host(self, name):
        """Its host as --devices has it; None where that names none."""
        return self.at[name][0]

    def device(self, name):
        return self.at[name][1]

    def by_host(self, names=None):
        """Names by their hosts, in the order of the list."""
        out = {}
        for name in self.names if names is None else names:
            out.setdefault(self.host(name), []).append(name)
        return out

    def hosts(self, names):
        """For a launcher: the host of each, one for each rank."""
        return ",".join(self.host(name) or "localhost" for name in names)

    def words(self, names):
        """What stands before a program that runs on these."""
        shown = {host: ",".join(self.device(name) for name in held)
                 for host, held in self.by_host(names).items()}
        if None in shown:
            return ["env", f"CUDA_VISIBLE_DEVICES={shown[None]}"]
        cases = [f"{host}|{host}.*|{host.split('.')[0]}) CUDA_VISIBLE_DEVICES={devices} ;;"
                 for host, devices in shown.items()]
        script = " ".join(["host=${SLURMD_NODENAME:-$(hostname)}; case $host in", *cases,
                           ELSEWHERE.format(hosts=", ".join(shown)), "esac;",
                           'export CUDA_VISIBLE_DEVICES; exec "$@"'])
        return ["sh", "-c", script, "stowage_accept"]

    def pairs(self, which):
        """@param which "neighbours" in the list, or "all"
        @return (name, other, whether they are of one host)"""
        made = (zip(self.names, self.names[1:]) if which == "neighbours"
                else itertools.combinations(self.names, 2))
        return [(one, other, self.host(one) == self.host(other)) for one, other in made]


def launch(option, template, allowed):
    """The words of --alone or --all with what they may name filled in."""
    try:
        return shlex.split(template.format(**allowed))
    except (KeyError, IndexError, ValueError) as problem:
        names = ", ".join(f"{{{name}}}" for name in allowed)
        raise ValueError(f"{option} '{template}': may name {names}, not {problem}") from problem
